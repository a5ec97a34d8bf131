"""Adapters fused into the weights of a checkpoint, while these are written and before they are quantized.

What an adapter changes is known by the network's names; where the rows of a stored tensor arrive in the
network is the family's own word (`runtime.models.passage`). So each stored row is taken to where it is
computed with, changed there (`runtime.nn.fused_pairs` is the definition), and taken back: renaming, cutting,
stacking and scaling undone. float32 throughout; the result is rounded once, to the float type that is asked
for, else the checkpoint's own.

Dimensions: R rows, C columns, r the rank, E experts.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from modelkit.display import shown
from modelkit.errors import PlanError
from modelkit.pack.adapters.place import head_beside, kinds_of
from modelkit.pack.planning.experts import input_first_owners
from modelkit.pack.planning.families import checkpoint_of
from modelkit.pack.planning.matrix import stored_input_first
from modelkit.pack.planning.slabs import Coded, Columns, Factor, Joined, Order, Piece
from modelkit.source.gguf.checkpoint import GgufWeights
from modelkit.source.inventory import Inventory
from runtime.models import Described
from runtime.models.passage import Arrival, Form, by_numbers, parameters, trace
from runtime.nn.low_rank import HEAD, LowRank, LowRanks
from runtime.records import dataclass

if TYPE_CHECKING:
    import mlx.core as mx


@dataclass(frozen=True, slots=True)
class Way:
    """Where each row of one stored tensor is computed with. A vector's rows are its numbers."""

    parameter: np.ndarray
    """int32 [R]: which parameter of the network, by its place in `Ways.parameters`; -1: none that changes."""
    row: np.ndarray
    """int64 [R]: its place among all rows of the parameter."""
    times: np.ndarray
    """float32 [R]: what it is multiplied by on the way."""
    plus: np.ndarray
    """float32 [R]: what is added then."""


@dataclass(frozen=True, slots=True)
class Ways:
    """Of all stored tensors that adapters change."""

    parameters: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    of: Mapping[str, Way]
    """By stored tensor."""
    tables: frozenset[str]
    """Which of the parameters are looked up."""


def ways(described: Described, inventory: Inventory, changed: Iterable[str]) -> Ways:
    """changed: parameters of the network, by name; of head and embedding that are one, both or none.

    Raises PlanError for what cannot be fused into this checkpoint.
    """
    names = set(changed)
    if head_beside(described, parameters(described)) is not None:
        names.discard(f"{HEAD}.weight")
    return ways_of(described, inventory, names)


def parted(described: Described, changed: set[str], *, unties: bool) -> str | None:
    """The table that is the head, too, where what changes the one is not what changes the other.

    unties: does a change to the embedding leave a head that is tied to it?
    """
    tied = head_beside(described, parameters(described))
    touched = {tied, f"{HEAD}.weight"} & changed
    return tied if touched and (unties or len(touched) == 1) else None


def ways_of(described: Described, inventory: Inventory, names: set[str]) -> Ways:
    """The same for parameters that are stored, each by itself."""
    shapes = _output_first(inventory)
    passage = trace(described, shapes, {}, _form(shapes))
    arrivals = {one.name: one for one in passage.arrivals if one.name in names}
    missing = sorted(names - arrivals.keys())
    if missing and missing[0].endswith(".bias"):
        raise PlanError(
            f"the adapter brings {shown(missing[0])}, and the base has no bias there to fuse it into",
            hint="Leave --fuse-adapters out: run time adds what the adapter brings.",
        )
    if missing:
        raise PlanError(
            f"the adapter changes {shown(missing[0])}, which is stored in a way that nothing is fused into",
            hint="Leave --fuse-adapters out: run time adds it.",
        )
    changing = tuple(sorted(arrivals))
    found: dict[str, Way] = {}
    for place, name in enumerate(changing):
        _enter(found, arrivals[name], place, shapes)
    tables = frozenset(f"{name}.weight" for name, kind in kinds_of(described).items() if kind == "table")
    return Ways(changing, tuple(arrivals[name].shape for name in changing), found, tables)


def in_file(known: Ways, kind: GgufWeights) -> Ways:
    """The same, rows of a GGUF file's own tensors included, which lie in another order there. Those whose
    numbers the file has otherwise are changed under the checkpoint's names.

    Raises PlanError where rows that change are something else's, too.
    """
    found = dict(known.of)
    for name, origin in kind.origins.items():
        way, total = known.of.get(name), sum(run.rows for run in origin.runs)
        if way is None:
            way = _nowhere(total)
        elif origin.change is not None:
            continue
        many, first = way.row.size // total, 0
        for run in origin.runs:
            own = found.setdefault(run.tensor, _nowhere(run.of * many))
            rows = np.arange(run.start, run.stop, run.step)
            at = (rows[:, None] * many + np.arange(many)).reshape(-1)
            mine = slice(first, first + at.size)
            if own.row.size != run.of * many or (own.parameter[at] >= 0).any():
                raise PlanError(
                    f"the adapter changes {shown(name)}, whose rows are others' in the file, too",
                    hint="Make a package of it with -q f32, which is exact, then one FROM that.",
                )
            own.parameter[at], own.row[at] = way.parameter[mine], way.row[mine]
            own.times[at], own.plus[at] = way.times[mine], way.plus[mine]
            first += at.size
    return replace(known, of={name: way for name, way in found.items() if (way.parameter >= 0).any()})


def _enter(
    found: dict[str, Way], arrival: Arrival, place: int, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    flat = arrival.source.reshape(-1)
    here = np.arange(flat.size)
    for number, name in enumerate(arrival.sources):
        count = _rows(name, shapes[name])
        way = found.get(name)
        if way is None:
            way = found[name] = _nowhere(count)
        mine = flat == number
        at = arrival.row.reshape(-1)[mine]
        way.parameter[at], way.row[at] = place, here[mine]
        way.times[at], way.plus[at] = arrival.times.reshape(-1)[mine], arrival.plus.reshape(-1)[mine]


def _nowhere(count: int) -> Way:
    zeros = np.zeros(count, np.float32)
    return Way(np.full(count, -1, np.int32), np.zeros(count, np.int64), np.ones(count, np.float32), zeros)


def _rows(name: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape if by_numbers(name, shape) else shape[:-1])


def _output_first(inventory: Inventory) -> dict[str, tuple[int, ...]]:
    """The stored tensors as matrices with their outputs first, whichever way they are stored."""
    tensors = list(inventory.tensors.values())
    files = checkpoint_of(inventory.config)
    owners = input_first_owners(tensors, files)
    turned = stored_input_first(tensors, files)
    shapes: dict[str, tuple[int, ...]] = {}
    for tensor in tensors:
        first = turned and len(tensor.shape) == 2 and tensor.name.endswith(files.input_first)
        stack = len(tensor.shape) == 3 and tensor.name.rpartition(".experts.")[0] in owners
        swapped = (*tensor.shape[:-2], *tensor.shape[:-3:-1])
        shapes[tensor.name] = swapped if first or stack else tensor.shape
    return shapes


def _form(shapes: Mapping[str, tuple[int, ...]]) -> Form:
    filters = [shape for name, shape in shapes.items() if "conv" in name and len(shape) == 3]
    return "mlx" if filters and all(shape[-1] == 1 < shape[1] for shape in filters) else "published"


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

    def touches(self, piece: Piece) -> bool:
        return piece.name in self._ways.of

    def apply(self, piece: Piece, values: "mx.array") -> "mx.array":
        """values: the piece's rows [rows, C] (a vector's as one row) -> those that are written, float32."""
        import mlx.core as mx

        way = self._ways.of[piece.name]
        ids = _ids(piece, way)
        given = np.array(values.astype(mx.float32))
        rows = given.reshape(ids.size, -1)
        fused = rows.copy()
        for place in np.unique(way.parameter[ids]):
            if place >= 0:
                mine = way.parameter[ids] == place
                times, plus = way.times[ids][mine][:, None], way.plus[ids][mine][:, None]
                there = self._changed(int(place), way.row[ids][mine], rows[mine] * times + plus)
                fused[mine] = (there - plus) / times
        return mx.array(fused.reshape(given.shape))

    def _changed(self, place: int, row: np.ndarray, own: np.ndarray) -> np.ndarray:
        """These rows of a parameter of the network as all adapters together have them."""
        name, shape = self._ways.parameters[place], self._ways.shapes[place]
        base = self._replaced(name, shape, row, own)
        module, _, leaf = name.rpartition(".")
        total = base.copy()
        for pair in self._pairs.get(module, ()):
            if leaf == "bias" and pair.bias is not None:
                total += pair.bias[row][:, None]
            elif leaf == "weight" and name in self._ways.tables:
                total += pair.down[row] @ pair.up
            elif leaf == "weight":
                total += _with_pair(pair, shape, row, base) - base
        return total

    def _replaced(self, name: str, shape: tuple[int, ...], row: np.ndarray, base: np.ndarray) -> np.ndarray:
        """Rows that an adapter brings whole."""
        if name in self._whole:
            base = self._whole[name].reshape(_rows(name, shape), -1)[row]
        for ids, values in self._rows.get(name, ()):
            base, place = base.copy(), np.full(_rows(name, shape), -1)
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
    norm = np.linalg.norm(total, axis=1)
    return total * np.where(norm > 0, pair.magnitude[row] / np.where(norm > 0, norm, 1), 1)[:, None]


def _floats(array: "mx.array") -> np.ndarray:
    import mlx.core as mx

    return np.array(array.astype(mx.float32))


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
