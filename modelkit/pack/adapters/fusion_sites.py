"""Where adapters act that are fused into the weights of a checkpoint (`fusion` has the numbers).

What an adapter changes is known by the network's names; where the rows of a stored tensor arrive in the
network is the family's own word (`runtime.loading.row_trace`). So each stored row is known by where it is
computed with, whatever was renamed, cut, stacked and scaled on the way.

Dimensions: R rows, C columns.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from modelkit.errors import PlanError
from modelkit.pack.adapters.place import head_beside, kinds_of
from modelkit.pack.planning.experts import input_first_owners
from modelkit.pack.planning.families import checkpoint_of
from modelkit.pack.planning.matrix import stored_input_first
from modelkit.source.gguf.checkpoint import GgufWeights
from modelkit.source.inventory import Inventory
from runtime.loading.row_trace import Arrival, trace
from runtime.loading.shapes import Form, by_numbers
from runtime.models import Described
from runtime.nn.adapters.low_rank import HEAD
from runtime.quoting import shown
from runtime.records import dataclass


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
    if head_beside(described) is not None:
        names.discard(f"{HEAD}.weight")
    return ways_of(described, inventory, names)


def table_that_parts(described: Described, changed: set[str], *, unties: bool) -> str | None:
    """The table that is the head, too, where what changes the one is not what changes the other.

    unties: does a change to the embedding leave a head that is tied to it?
    """
    tied = head_beside(described)
    touched = {tied, f"{HEAD}.weight"} & changed
    return tied if touched and (unties or len(touched) == 1) else None


def ways_of(described: Described, inventory: Inventory, names: set[str]) -> Ways:
    """The same for parameters that are stored, each by itself."""
    shapes = _output_first(inventory)
    traced = trace(described, shapes, {}, _form(shapes))
    arrivals = {one.name: one for one in traced.arrivals if one.name in names}
    missing = sorted(names - arrivals.keys())
    if missing and missing[0].endswith(".bias"):
        raise PlanError(
            f"the adapter brings {shown(missing[0])}, and the base has no bias there to fuse it into",
            hint="Leave --fuse-adapters out: run time adds what the adapter brings.",
        )
    if missing:
        raise PlanError(
            f"the adapter changes {shown(missing[0])}, and nothing can be fused into the form of its weights",
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
                    f"the adapter changes {shown(name)}, whose rows belong to others in the file, too",
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
        count = rows_of(name, shapes[name])
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


def rows_of(name: str, shape: tuple[int, ...]) -> int:
    """The rows of a tensor of that shape; a vector's are its numbers."""
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
