"""Parts of pages between two marks, which a program writes and a test compares."""

from pathlib import Path


def section(page: str, begin: str, end: str) -> str:
    """What stands between the marks."""
    return page.partition(begin)[2].partition(end)[0]


def rewrite(path: Path, begin: str, end: str, text: str) -> None:
    """Put a text between the marks of a page."""
    page = path.read_text(encoding="utf-8")
    before, _, rest = page.partition(begin)
    path.write_text(before + begin + text + end + rest.partition(end)[2], encoding="utf-8")
