"""Bytes of source tensors, read at the offsets that their headers were validated for.

Each file is opened once, must still be what was validated, and must still be so at the end: a source that
changes while it is read is an error, never half of one model and half of another. `read` may be called from
any thread.
"""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from modelkit.errors import SourceError
from modelkit.pack.planning.slabs import Columns, Slab, whole
from modelkit.python_faults import os_reason
from modelkit.source.inventory import WeightFile
from modelkit.source.tensor import TensorInfo
from modelkit.source.tree import open_regular

_BLOCK_BYTES = 8 << 20


class Reader:
    """The open weight files of one source; a context manager."""

    def __init__(self, files: Iterable[WeightFile]) -> None:
        self._files = tuple(files)
        self._descriptors: dict[Path, int] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for file in self._files:
                opened = stack.enter_context(open_regular(file.path, file.name))
                self._descriptors[file.path] = opened.fileno()
            self.check_unchanged()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def check_unchanged(self) -> None:
        """Raise SourceError if a file is no longer the one whose header was read."""
        for file in self._files:
            if not file.header.unchanged(self._descriptors[file.path]):
                raise _changed(file.path)

    def read(self, slab: Slab | Columns) -> bytearray:
        """The rows from slab.start to slab.stop, those between steps included; columns likewise."""
        if isinstance(slab, Columns):
            return self._read_columns(slab)
        start = slab.tensor.start + slab.start * slab.row_bytes
        stop = slab.tensor.start + slab.stop * slab.row_bytes
        assert slab.tensor.start <= start <= stop <= slab.tensor.stop, slab
        return self.read_range(slab.tensor.path, start, stop)

    def _read_columns(self, slab: Columns) -> bytearray:
        """[height, stop - start], row by row."""
        row_bytes = slab.width * slab.item_bytes
        piece = (slab.stop - slab.start) * slab.item_bytes
        first = slab.tensor.start + slab.matrix * slab.height * row_bytes + slab.start * slab.item_bytes
        last = first + (slab.height - 1) * row_bytes
        assert slab.tensor.start <= first <= last + piece <= slab.tensor.stop, slab
        data = bytearray(slab.height * piece)
        view = memoryview(data)
        for row in range(slab.height):
            self._fill(view[row * piece : (row + 1) * piece], slab.tensor.path, first + row * row_bytes)
        return data

    def read_range(self, path: Path, start: int, stop: int) -> bytearray:
        data = bytearray(stop - start)
        self._fill(memoryview(data), path, start)
        return data

    def _fill(self, view: memoryview, path: Path, start: int) -> None:
        """Read as many bytes as `view` has, from `start` on."""
        stop = start + len(view)
        while view:
            try:
                count = os.preadv(self._descriptors[path], [view], stop - len(view))
            except OSError as error:
                raise SourceError(f"cannot read {path.name}: {os_reason(error)}") from error
            if count == 0:
                raise _changed(path)
            view = view[count:]


def same_data(left: Reader, one: TensorInfo, right: Reader, other: TensorInfo) -> bool:
    """Do two tensors hold the same numbers in the same form? Neither is read beyond the first difference."""
    if (one.dtype, one.shape, one.nbytes) != (other.dtype, other.shape, other.nbytes):  # codes may be either
        return False
    pairs = zip(whole(one).blocks(_BLOCK_BYTES), whole(other).blocks(_BLOCK_BYTES), strict=True)
    return all(left.read(mine) == right.read(its) for mine, its in pairs)


def _changed(path: Path) -> SourceError:
    return SourceError(f"{path} changed while it was being read", hint="Try again when nothing writes to it.")
