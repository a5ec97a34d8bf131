"""Paths of files inside a package. They come from manifests anybody may have written and become real paths on
export.

A safe path is relative, uses `/`, has no empty, `.` or `..` part, nothing unprintable, nothing that another
system reads as a drive or a stream, and is spelled in Unicode's composed form. A tree of them has no two that
differ in case only and no file that is also a folder, so it can be laid out on any file system.
"""

import unicodedata
from collections.abc import Iterable

from modelkit.errors import StoreError

_DEEPEST = 8
_LONGEST_PART_BYTES = 255
_FORBIDDEN = frozenset('\\:*?"<>|')


def check_path(path: object) -> str:
    """`path` itself if it is safe; a StoreError that says why not otherwise."""
    if not isinstance(path, str):
        raise StoreError(f"the file path of a package must be text, not {type(path).__name__}")
    why = _fault(path)
    if why:
        raise StoreError(f"the file path {path[:200]!a} is none that a package can have: {why}")
    return path


def check_tree(paths: Iterable[str]) -> None:
    """Refuse a set of safe paths that cannot stand side by side in one folder."""
    files: dict[str, str] = {}
    for path in paths:
        folded = path.casefold()
        if folded in files:
            raise StoreError(f"two files of one package have the same path: {files[folded]!r} and {path!r}")
        files[folded] = path
    for folded, path in files.items():
        parts = folded.split("/")
        for depth in range(1, len(parts)):
            if "/".join(parts[:depth]) in files:
                raise StoreError(f"{path!r} lies inside a path that is itself a file of the package")


def _fault(path: str) -> str | None:
    parts = path.split("/")
    if len(parts) > _DEEPEST:
        return f"more than {_DEEPEST} levels"
    if any(part in ("", ".", "..") for part in parts):
        return "it must be relative, without empty, `.` or `..` parts"
    if not path.isprintable() or _FORBIDDEN & set(path) or unicodedata.normalize("NFC", path) != path:
        return "it holds characters that are not the same file name everywhere"
    if any(len(part.encode(errors="replace")) > _LONGEST_PART_BYTES for part in parts):
        return f"a part is longer than {_LONGEST_PART_BYTES} bytes"
    if any(part.endswith((".", " ")) or part.startswith(" ") for part in parts):
        return "a part begins or ends with a blank, or ends with a dot"
    return None
