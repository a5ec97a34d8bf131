"""Files of weights that have nothing but what planning reads of them: for `create --dry-run`, and to refuse
what cannot be packaged before its weights are fetched.

A hollow file is as large as the real one and has its header; all else in it is a hole, which takes no room on
disk. It lies in a folder of the command's own and never in a cache, so that nobody takes it for the real one.
Of GGUF the small tensors come too: some of them belong to the config.
"""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from modelkit.source.gguf.cursor import Cursor
from modelkit.source.gguf.folder import is_gguf
from modelkit.source.gguf.header import read_layout
from modelkit.source.safetensors import MAX_HEADER_BYTES

_FIRST_BYTES = 1 << 16
_SMALL_BYTES = 2048
_ROPE = "rope_"
"""Factors of positions, which are as long as half a head."""

Piece = Callable[[int, int], bytes]
"""The bytes [start, stop) of a file somewhere else."""


def write_hollow(piece: Piece, name: str, size_bytes: int, path: Path) -> None:
    """Let `path` be the hollow form of the file that `piece` gives parts of. name: of that file; its ending
    says what is in it. Raises what `piece` raises, and SourceError for a header that no such file has.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as hollow:
        hollow.truncate(size_bytes)
        front = _Front(piece, size_bytes, hollow)
        if is_gguf(name):
            _gguf(front, name, path)
        else:
            _safetensors(front)


class _Front:
    """A file read from its first byte on; what was read is in the hollow file."""

    def __init__(self, piece: Piece, size_bytes: int, hollow: BinaryIO) -> None:
        self._piece, self._hollow = piece, hollow
        self.size_bytes = size_bytes
        self._at = 0

    def read(self, count: int) -> bytes:
        stop = min(self._at + count, self.size_bytes)
        data = self.bring(self._at, stop)
        self._at = stop
        return data

    def bring(self, start: int, stop: int) -> bytes:
        if start >= stop:
            return b""
        data = self._piece(start, stop)
        self._hollow.seek(start)
        self._hollow.write(data)
        return data


def _safetensors(front: _Front) -> None:
    """A header that announces more than it may have is left to whoever reads the file."""
    length = int.from_bytes(front.read(_FIRST_BYTES)[:8], "little")
    if length <= MAX_HEADER_BYTES:
        front.read(8 + length - _FIRST_BYTES)


def _gguf(front: _Front, name: str, path: Path) -> None:
    cursor = Cursor(cast(BinaryIO, front), front.size_bytes, name)
    for tensor in read_layout(cursor, path).tensors:
        if tensor.nbytes <= _SMALL_BYTES or tensor.name.startswith(_ROPE):
            front.bring(tensor.start, tensor.stop)
