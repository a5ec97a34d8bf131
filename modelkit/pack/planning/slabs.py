"""Where the bytes of an output come from: rows of a source tensor, columns of one to be turned over, rows of
several whose numbers change, or rows of codes with what belongs to them: the order of their inputs, a factor.

All say how many rows they give and can be cut into blocks, so what is written streams. Nothing here reads.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Self, TypeAlias

from modelkit.source.codes import CodeMatrix
from modelkit.source.gguf.architectures.changes import Change
from modelkit.source.tensor import BITS, TensorInfo
from runtime.quant import FORMATS
from runtime.records import dataclass

# The system reads whole pages, so columns are read in pieces of rows no smaller than one.
_PIECE_BYTES = 4096
_WORD_ROWS = 32  # codes of so many rows fill whole words, whatever their bits


@dataclass(frozen=True, slots=True)
class Tiles:
    """The scales of an F8_E4M3 matrix: one for each tile."""

    scales: TensorInfo
    block: tuple[int, int]
    """Rows and columns of a tile; those at the edges may have fewer."""
    shares: int = 1
    """Matrices that one of the tensor is, one below the other: the tiles of each start afresh."""


@dataclass(frozen=True, slots=True)
class Groups:
    """How rows of codes are to be unpacked: as MLX packs them, with a scale for each group, and their inputs
    in another order.
    """

    scales: TensorInfo
    biases: TensorInfo | None
    bits: int
    group_size: int
    mode: str
    order: TensorInfo | None = None
    """uint32 [.., in], one for each matrix."""


def packing_label(bits: int, group_size: int, mode: str) -> str:
    """The format as users read it."""
    for row in FORMATS:
        if (row.bits, row.group_size, row.mode) == (bits, group_size, mode):
            return row.name
    return f"{'q' if mode == 'affine' else mode + '-'}{bits}g{group_size}"


@dataclass(frozen=True, slots=True)
class Slab:
    """Rows start, start+step, ... below stop of a tensor seen as rows."""

    tensor: TensorInfo
    start: int
    stop: int
    step: int
    """In rows."""
    row_bytes: int
    """Of one row."""
    tiles: Tiles | None = None
    """The scales, where the tensor is FP8."""
    groups: Groups | None = None
    """Where it is packed as MLX packs, and its numbers are wanted."""

    @property
    def name(self) -> str:
        """What the rows are known by, here and in other pieces, to whoever changes their numbers."""
        return self.tensor.name

    @property
    def rows(self) -> int:
        return len(range(self.start, self.stop, self.step))

    @property
    def nbytes(self) -> int:
        """Of the rows themselves, as they are stored."""
        return self.rows * self.row_bytes

    @property
    def read_bytes(self) -> int:
        """What reading it takes, the rows between steps included."""
        return (self.stop - self.start) * self.row_bytes

    def blocks(self, limit_bytes: int) -> Iterator["Slab"]:
        """This slab in consecutive pieces that read about `limit_bytes` each; at least one row."""
        if not self.row_bytes:
            return
        count = max(limit_bytes // (self.row_bytes * self.step), 1) * self.step
        for start in range(self.start, self.stop, count):
            yield replace(self, start=start, stop=min(start + count, self.stop))


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns start, start+step, ... below stop of one matrix in a stack of them; each gives a row."""

    tensor: TensorInfo
    matrix: int
    """Counted through all dimensions of the tensor but the last two."""
    start: int
    stop: int
    step: int
    tiles: Tiles | None = None
    """The scales, where the tensor is FP8."""

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def height(self) -> int:
        return self.tensor.shape[-2]

    @property
    def width(self) -> int:
        return self.tensor.shape[-1]

    @property
    def item_bytes(self) -> int:
        return BITS[self.tensor.dtype] // 8

    @property
    def rows(self) -> int:
        return len(range(self.start, self.stop, self.step))

    @property
    def nbytes(self) -> int:
        return self.rows * self.height * self.item_bytes

    @property
    def read_bytes(self) -> int:
        return (self.stop - self.start) * self.height * self.item_bytes

    def blocks(self, limit_bytes: int) -> Iterator["Columns"]:
        """As a Slab's, but that no piece is narrower than a page."""
        column_bytes = self.height * self.item_bytes
        if not column_bytes:
            return
        columns = max(limit_bytes // column_bytes, _PIECE_BYTES // self.item_bytes)
        count = max(columns // self.step, 1) * self.step
        for start in range(self.start, self.stop, count):
            yield replace(self, start=start, stop=min(start + count, self.stop))


@dataclass(frozen=True, slots=True)
class Joined:
    """Rows of several tensors, or of one, as the floats of one tensor, whose numbers or columns then change.

    It is computed as a whole: what changes may look at all of it.
    """

    parts: tuple[Slab, ...]
    twin: Slab
    """The same rows of the checkpoint's tensor, as if it lay in a file by itself."""
    shape: tuple[int, ...]
    """Of the numbers that come out."""
    change: Change | None = None
    tiles: None = None

    @property
    def tensor(self) -> TensorInfo:
        """The first of them."""
        return self.parts[0].tensor

    @property
    def name(self) -> str:
        return self.twin.name

    @property
    def rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def read_bytes(self) -> int:
        return sum(part.read_bytes for part in self.parts)

    def blocks(self, limit_bytes: int) -> Iterator["Joined"]:  # in one piece, whatever it takes
        yield self


@dataclass(frozen=True, slots=True)
class Coded:
    """Rows start, start+step, ... below stop of a matrix of codes: their codes, scales and zero points."""

    matrix: CodeMatrix
    start: int
    stop: int
    step: int = 1
    tiles: None = None

    @property
    def tensor(self) -> TensorInfo:
        return self.matrix.codes

    @property
    def name(self) -> str:
        return self.matrix.name

    @property
    def rows(self) -> int:
        return len(range(self.start, self.stop, self.step))

    @property
    def nbytes(self) -> int:
        """Their part of all that is stored."""
        return self.rows * self.matrix.nbytes // max(self.matrix.rows, 1)

    @property
    def read_bytes(self) -> int:
        """The rows between steps included."""
        return self.nbytes * self.step

    def blocks(self, limit_bytes: int) -> Iterator["Coded"]:
        """As a Slab's; none that lies by columns is narrower than a page."""
        row_bytes = max(self.matrix.nbytes // max(self.matrix.rows, 1), 1)
        narrowest = _PIECE_BYTES * 8 // self.matrix.bits if self.matrix.by_columns else 1
        count = max(limit_bytes // row_bytes, narrowest)
        count = (count + -count % _WORD_ROWS) * self.step
        for start in range(self.start, self.stop, count):
            yield replace(self, start=start, stop=min(start + count, self.stop))


@dataclass(frozen=True, slots=True)
class Beside:
    """One row that stands beside the codes of a matrix, and is a part of what is stored of them."""

    matrix: CodeMatrix
    tiles: None = None

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def tensor(self) -> TensorInfo:
        raise NotImplementedError

    @property
    def rows(self) -> int:
        return 1

    @property
    def nbytes(self) -> int:
        """None of its own."""
        return 0

    @property
    def read_bytes(self) -> int:
        return 0

    def blocks(self, limit_bytes: int) -> Iterator[Self]:
        yield self


class Order(Beside):
    """The inputs of a matrix of codes in the order of their groups."""

    __slots__ = ()

    @property
    def tensor(self) -> TensorInfo:
        assert self.matrix.groups is not None
        return self.matrix.groups


@dataclass(frozen=True, slots=True)
class Factor(Beside):
    """What the numbers of rows of small floats, as a Coded's, are times besides: one number."""

    start: int = 0
    step: int = 1

    @property
    def tensor(self) -> TensorInfo:
        found = self.matrix.factor or self.matrix.over
        assert found is not None
        return found


Stored: TypeAlias = Slab | Columns
"""What is read as it lies in one tensor."""
Piece: TypeAlias = Stored | Joined | Coded | Order | Factor


def whole(tensor: TensorInfo, tiles: Tiles | None = None) -> Slab:
    """All rows of a tensor; a row runs along its last dimension."""
    rows = math.prod(tensor.shape[:-1])
    return Slab(tensor, 0, rows, 1, tensor.nbytes // rows if rows else 0, tiles)


def turned(
    tensor: TensorInfo, tiles: Tiles | None = None, *, start: int = 0, stop: int | None = None, step: int = 1
) -> tuple[Columns, ...]:
    """These columns of every matrix of a tensor, matrix after matrix."""
    last = tensor.shape[-1] if stop is None else stop
    count = math.prod(tensor.shape[:-2])
    return tuple(Columns(tensor, matrix, start, last, step, tiles) for matrix in range(count))
