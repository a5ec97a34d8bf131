"""LICENSE texts of a Modelfile, as files beside those of the source. A text that is there is not repeated."""

from collections.abc import Iterable
from itertools import count

from modelkit.source.tree import Files, open_regular

_STARTS = ("LICENSE", "LICENCE", "COPYING")
_LIMIT_BYTES = 64_000_000


def is_license(name: str) -> bool:
    """Of a file beside the weights."""
    return "/" not in name and name.upper().startswith(_STARTS)


def license_files(files: Files, texts: Iterable[str]) -> dict[str, bytes]:
    """New files by name, for the texts that no license file of the source holds."""
    present = {_text(files, name) for name in files if is_license(name)}
    taken = {name.casefold() for name in files}
    made: dict[str, bytes] = {}
    for text in texts:
        data = text.encode()
        if data.strip() in present:
            continue
        present.add(data.strip())
        name = next(name for name in _names() if name.casefold() not in taken)
        taken.add(name.casefold())
        made[name] = data
    return made


def _names() -> Iterable[str]:
    yield "LICENSE"
    for number in count(2):
        yield f"LICENSE-{number}"


def _text(files: Files, name: str) -> bytes:
    with open_regular(files[name], name) as file:
        return file.read(_LIMIT_BYTES).strip()
