"""Adapters fused into the weights of a checkpoint, while these are written and before they are quantized.

Each stored row is taken to where it is computed with (`fusing`), changed there (`nn.adapters.fusion` is
the definition), and taken back. float32 throughout; the result is rounded once, to the float type that is
asked for, else the checkpoint's own. A magnitude of a table belongs to a column, whose norm takes all rows:
those tables are read once before any of their rows is changed (`measure`).

Dimensions: R rows, C columns, r the rank, E experts.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from modelkit.pack.adapters.fusion_sites import Way, Ways, rows_of
from modelkit.pack.planning.slabs import Coded, Columns, Factor, Joined, Order, Piece
from runtime.nn.adapters.low_rank import LowRank, LowRanks
from runtime.records import dataclass

if TYPE_CHECKING:
    import mlx.core as mx


@dataclass(frozen=True, slots=True)
class _Pair:
    """A LowRank's numbers, float32, its scale in `up` and `bias`."""

    down: np.ndarray
    up: np.ndarray
    magnitude: np.ndarray | None
    bias: np.ndarray | None

    @classmethod
    def of(cls, pair: LowRank) -> "_Pair":
        scale = np.float32(pair.scale)
        magnitude = None if pair.magnitude is None else _floats(pair.magnitude).reshape(-1)
        bias = None if pair.bias is None else _floats(pair.bias) * scale
        return cls(_floats(pair.down), _floats(pair.up) * scale, magnitude, bias)


class Fusion:
    """The adapters' numbers, by parameter of the network, ready to change rows of stored tensors. All are
    read when it is made, so that any thread may ask.
    """

    def __init__(self, known: Ways, adapters: Sequence[LowRanks]) -> None:
        self._ways = known
        self._pairs: dict[str, list[_Pair]] = {}
        self._whole: dict[str, np.ndarray] = {}
        self._rows: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for adapter in adapters:
            for module, pair in adapter.pairs.items():
                self._pairs.setdefault(module, []).append(_Pair.of(pair))
            self._whole |= {name: _floats(array) for name, array in adapter.whole.items()}
            for name, rows in adapter.rows.items():
                self._rows.setdefault(name, []).append((np.array(rows.ids), _floats(rows.values)))
        self._squares: dict[str, list[np.ndarray]] = {
            name: [np.zeros(pair.up.shape[-1]) for pair in self._of(name)]
            for name in known.tables
            if any(pair.magnitude is not None for pair in self._of(name))
        }

    def _of(self, name: str) -> list[_Pair]:
        """The pairs behind a weight."""
        return self._pairs.get(name.removesuffix(".weight"), [])

    def touches(self, piece: Piece) -> bool:
        return piece.name in self._ways.of

    def to_measure(self, piece: Piece) -> bool:
        """See `Change`."""
        way = self._ways.of.get(piece.name) if self._squares else None
        places = () if way is None else np.unique(way.parameter)
        return any(place >= 0 and self._ways.parameters[place] in self._squares for place in places)

    def measure(self, piece: Piece, values: "mx.array") -> None:
        """See `Change`."""
        for place, row, _, _, _, own in self._arriving(piece, values):
            name, shape = self._ways.parameters[place], self._ways.shapes[place]
            base = self._replaced(name, shape, row, own)
            for pair, squares in zip(self._of(name), self._squares.get(name, ()), strict=False):
                squares += np.square(base + pair.down[row] @ pair.up, dtype=np.float64).sum(axis=0)

    def apply(self, piece: Piece, values: "mx.array") -> "mx.array":
        """values: the piece's rows [rows, C] (a vector's as one row) -> those that are written, float32."""
        import mlx.core as mx

        fused = _rows(piece, self._ways.of[piece.name], values).copy()
        for place, row, mine, times, plus, own in self._arriving(piece, values):
            fused[mine] = (self._changed(place, row, own) - plus) / times
        return mx.array(fused.reshape(values.shape))

    def _arriving(
        self, piece: Piece, values: "mx.array"
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """By parameter of the network: its place, which of its rows, which of the piece's these are, what
        they were multiplied by and added to, and their numbers there.
        """
        way = self._ways.of[piece.name]
        ids, rows = _ids(piece, way), _rows(piece, way, values)
        for place in np.unique(way.parameter[ids]):
            if place >= 0:
                mine = way.parameter[ids] == place
                times, plus = way.times[ids][mine][:, None], way.plus[ids][mine][:, None]
                yield int(place), way.row[ids][mine], mine, times, plus, rows[mine] * times + plus

    def _changed(self, place: int, row: np.ndarray, own: np.ndarray) -> np.ndarray:
        """These rows of a parameter of the network as all adapters together have them."""
        name, shape = self._ways.parameters[place], self._ways.shapes[place]
        base = self._replaced(name, shape, row, own)
        leaf, total = name.rpartition(".")[2], base.copy()
        for number, pair in enumerate(self._pairs.get(name.rpartition(".")[0], ())):
            if leaf == "bias" and pair.bias is not None:
                total += pair.bias[row][:, None]
            elif leaf == "weight" and name in self._ways.tables:
                more = pair.down[row] @ pair.up
                if pair.magnitude is not None:
                    norm = np.sqrt(self._squares[name][number]).astype(np.float32)
                    more = (base + more) * _factor(pair.magnitude, norm) - base
                total += more
            elif leaf == "weight":
                total += _with_pair(pair, shape, row, base) - base
        return total

    def _replaced(self, name: str, shape: tuple[int, ...], row: np.ndarray, base: np.ndarray) -> np.ndarray:
        """Rows that an adapter brings whole."""
        if name in self._whole:
            base = self._whole[name].reshape(rows_of(name, shape), -1)[row]
        for ids, values in self._rows.get(name, ()):
            base, place = base.copy(), np.full(rows_of(name, shape), -1)
            place[ids] = np.arange(ids.size)
            mine = place[row] >= 0
            base[mine] = values[place[row][mine]]
        return base


def _with_pair(pair: _Pair, shape: tuple[int, ...], row: np.ndarray, base: np.ndarray) -> np.ndarray:
    """These rows of a weight [.., R, C] with a pair in them, and DoRA's factor."""
    more = np.empty_like(base)
    for stack in np.unique(row // shape[-2]):
        mine, at = row // shape[-2] == stack, row % shape[-2]
        left = pair.up[stack] if pair.up.ndim > 2 else pair.up
        right = pair.down[stack] if pair.down.ndim > 2 else pair.down
        more[mine] = left.T[at[mine]] @ right.T
    total = base + more
    if pair.magnitude is None:
        return total
    return total * _factor(pair.magnitude[row], np.linalg.norm(total, axis=1))[:, None]


def _factor(magnitude: np.ndarray, norm: np.ndarray) -> np.ndarray:
    """DoRA's m / n; what has no length keeps its own."""
    return np.where(norm > 0, magnitude / np.where(norm > 0, norm, 1), 1)


def _floats(array: "mx.array") -> np.ndarray:
    import mlx.core as mx

    return np.array(array.astype(mx.float32))


def _rows(piece: Piece, way: Way, values: "mx.array") -> np.ndarray:
    """float32, a row for each of `_ids`."""
    return _floats(values).reshape(_ids(piece, way).size, -1)


def _ids(piece: Piece, way: Way) -> np.ndarray:
    """Which rows of the matrix, outputs first, the piece's are. One of its rows may be a vector, of many."""
    slab = piece.twin if isinstance(piece, Joined) else piece
    assert not isinstance(slab, Order | Factor)
    ids = np.arange(slab.start, slab.stop, slab.step)
    if isinstance(slab, Coded):
        return ids
    if isinstance(slab, Columns):
        return ids + slab.matrix * slab.width
    many = way.row.size * slab.row_bytes // slab.tensor.nbytes
    return (ids[:, None] * many + np.arange(many)).reshape(-1)
