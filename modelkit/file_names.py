"""File names that every system takes, and takes for the same name."""

import unicodedata

_DEEPEST = 8
_LONGEST_PART_BYTES = 255
_FORBIDDEN = frozenset('\\:*?"<>|')


def path_fault(path: str) -> str | None:
    """Why a relative path is none that a package can have; None for one that is."""
    parts = path.split("/")
    if len(parts) > _DEEPEST:
        return f"more than {_DEEPEST} levels"
    if any(part in ("", ".", "..") for part in parts):
        return "it must be relative, without empty, `.` or `..` parts"
    if not path.isprintable() or _FORBIDDEN & set(path) or unicodedata.normalize("NFC", path) != path:
        return "it holds characters that are not the same file name everywhere"
    if any(len(part.encode(errors="replace")) > _LONGEST_PART_BYTES for part in parts):
        return f"a part is longer than {_LONGEST_PART_BYTES:,} bytes"
    if any(part.endswith((".", " ")) or part.startswith(" ") for part in parts):
        return "a part begins or ends with a blank, or ends with a dot"
    return None
