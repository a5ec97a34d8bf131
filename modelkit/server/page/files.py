"""The page's files, by the names under which they are served.

Names are fixed: those of the folder when the server starts. No path is ever made from a request, so nothing
else can be reached. A file is known by its content's hash: browsers ask each time and get 304 while it is
the same, so that a new version is seen at once.
"""

import gzip
import hashlib
from dataclasses import field
from pathlib import Path

from runtime.records import dataclass

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""By ending; a file with another one is not served."""
_PACKED_ALREADY = frozenset({".woff2"})
_WORTH_PACKING_BYTES = 1024


@dataclass(slots=True)
class File:
    """One file in memory."""

    kind: str
    """Its media type."""
    data: bytes
    packable: bool
    """Does gzip make it smaller?"""
    tag: str = ""
    """The entity tag, quotes included."""
    _packed: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        self.tag = f'"{hashlib.sha256(self.data).hexdigest()[:32]}"'

    def packed(self) -> bytes:
        """Its content by gzip, made once: milliseconds for the largest, so not on the event loop."""
        if not self._packed:
            self._packed = gzip.compress(self.data, 9, mtime=0)
        return self._packed


def read_files(folder: Path) -> dict[str, File]:
    """Every file of the folder that has a type, by its path below the folder, with slashes."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in TYPES)
    return {path.relative_to(folder).as_posix(): _read(path) for path in found}


def _read(path: Path) -> File:
    data = path.read_bytes()
    packable = len(data) > _WORTH_PACKING_BYTES and path.suffix not in _PACKED_ALREADY
    return File(TYPES[path.suffix], data, packable)
