"""What an adapter says, by names of checkpoints -> which modules of the network it changes.

Where a module's rows come from is the family's own word (`runtime.loading.row_trace`). Refused by name is
what arrives nowhere, in shapes that the network does not have, or where an adapter cannot act. No number is
read.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import mlx.nn as nn
import numpy as np

from modelkit.errors import SourceError
from modelkit.pack.adapters.normed_tables import refuse_behind_norms
from modelkit.pack.adapters.orientation import HINT, Shapes, oriented
from modelkit.pack.adapters.shared_blocks import for_first_use
from modelkit.pack.adapters.shared_table import for_one_table
from modelkit.pack.adapters.whole_parameters import TOKENS_HINT, size
from modelkit.pack.tying import is_head
from modelkit.source.adapters.value import AdapterSource, OwnRows, Pair, refuse
from runtime.loading.row_trace import Arrival, RowTrace, trace
from runtime.loading.shapes import output_first, parameters
from runtime.models import Described
from runtime.nn.adapters.low_rank import HEAD
from runtime.nn.attention.mla import HeadLinear
from runtime.nn.feed_forward.experts import SwitchLinear
from runtime.nn.linear import head_of
from runtime.quoting import shown
from runtime.records import dataclass
from runtime.tensors.checkpoint import TRUNK

_INNER = "language_model."
_TURNED = ".embed_q.weight"
_FUSED_THERE = "`mlx_lm.fuse --model MODEL --adapter-path DIR` makes a model of both, which FROM takes."

Kind = Literal["linear", "table", "experts", "heads", "other"]


@dataclass(frozen=True, slots=True)
class Placed:
    """A module that an adapter changes."""

    module: str
    """In the network."""
    kind: Kind
    """What computes it; heads: a matrix for each head, other: a router."""
    arrival: Arrival
    """Where its rows come from."""
    pairs: tuple[Pair, ...]
    """What they come from, in the order of `arrival.sources`."""

    @property
    def rank(self) -> int:
        return max(sum(self.pairs[i].rank for i in blocks) for blocks in self.blocks)

    @property
    def scale(self) -> float:
        """The largest of its pairs'."""
        return max((pair.scale for pair in self.pairs), key=abs)

    def share(self, place: int) -> float:
        """The scale of a pair, in units of that."""
        return self.pairs[place].scale / (self.scale or 1.0)

    @property
    def blocks(self) -> list[list[int]]:
        """Which pairs make up each matrix of the module, in order."""
        source = self.arrival.source
        rows = source.reshape(-1, source.shape[-1])
        return [[i for i in dict.fromkeys(row.tolist()) if i >= 0] for row in rows]


@dataclass(frozen=True, slots=True)
class Placement:
    """An adapter in a network."""

    source: AdapterSource
    placed: tuple[Placed, ...]
    whole: tuple[str, ...]
    """Parameters of the network that it brings whole."""
    rows: Mapping[str, OwnRows]
    """By the table's parameter in the network; of a table that is the head, too, for each of the two."""
    tied: str | None
    """The table that is the head, too."""

    @property
    def rank(self) -> int:
        return max((pair.rank for pair in self.source.pairs), default=0)

    @property
    def unties(self) -> bool:
        """Does it say one thing of the embedding and another of the head that is tied to it?"""
        if self.tied is None:
            return False
        one = {self.tied, f"{HEAD}.weight"}
        modules = {f"{placed.module}.weight" for placed in self.placed}
        apart = self.rows.get(self.tied) != self.rows.get(f"{HEAD}.weight")
        return apart or (self.source.unties and bool(one & (modules | set(self.whole))))

    @property
    def parameters(self) -> set[str]:
        """Those of the network that it changes."""
        found = {f"{one.module}.weight" for one in self.placed} | set(self.whole) | set(self.rows)
        return found | {f"{one.module}.bias" for one in self.placed if any(p.bias for p in one.pairs)}


def place(adapter: AdapterSource, described: Described, stored: Shapes) -> Placement:
    """stored: the base's own tensors (name -> shape). Raises SourceError, WeightMismatch."""
    refuse_behind_norms(adapter, described)
    network = parameters(described)
    adapter = for_one_table(for_first_use(adapter, described), described)
    adapter = _with_trunk(adapter, network)
    kinds = kinds_of(described)
    tables = {name for name, kind in kinds.items() if kind == "table"}
    pairs = oriented(adapter, described, stored, tables)
    tied = head_beside(described)
    heads = [
        name for name in pairs if tied and name == f"{HEAD}.weight" and pairs[name].shape == network[tied]
    ]
    if heads:  # so each of the two is told by itself
        adapter = replace(adapter, unties=True)
    asked = {name: pair.shape for name, pair in pairs.items() if name not in heads}
    traced = trace(described, asked, stored, adapter.form)
    refuse(adapter.label, _lost(traced), HINT)
    looked = {name for one in traced.arrivals if _module(one) in tables for name in one.sources}
    pairs |= {name: replace(pairs[name], table=True) for name in looked if pairs[name].parameter}
    placed = [Placed(HEAD, "linear", _identity(name, pairs[name].shape), (pairs[name],)) for name in heads]
    problems: list[str] = []
    for arrival in traced.arrivals:
        module = _module(arrival)
        own = tuple(pairs[name] for name in arrival.sources)
        kind = kinds.get(module)
        if own[0].table and kind != "table" and _has_table(traced, arrival, kinds):
            continue  # a head that a checkpoint lacks repeats the table, and not what is looked up in it
        problem = _problem(arrival, own, kind)
        if kind is None or problem is not None:
            problems.append(problem or f"{shown(arrival.sources[0])} is not a matrix that adapters change")
        else:
            placed.append(Placed(module, kind, arrival, own))
            if arrival.name == tied and not adapter.unties:
                problems += [f"{module} is the head, too, and has a magnitude"] if own[0].magnitude else []
                placed.append(Placed(HEAD, "linear", arrival, own))
    refuse(adapter.label, problems, HINT)
    whole = _whole(adapter, described, stored, tied, network)
    rows = _rows(adapter, described, network, tied)
    return Placement(adapter, tuple(placed), whole, rows, tied)


def _module(arrival: Arrival) -> str:
    return arrival.name.removesuffix(".weight")


def _with_trunk(adapter: AdapterSource, network: Shapes) -> AdapterSource:
    """What was trained without a head (transformers' AutoModel, sentence-transformers) lacks what stands
    before the names of a model that has one: `layers.0.self_attn.q_proj`, in a wrapper
    `language_model.layers.0.self_attn.q_proj`.
    """
    if not all(TRUNK + name.removeprefix(_INNER) in network for name in adapter.names):
        return adapter
    return adapter.renamed(lambda name: TRUNK + name)


def head_beside(described: Described) -> str | None:
    """The table that is the head, too; None where the head is a matrix of its own."""
    network: Any = described.network()
    table = head_of(network)
    if table is None:
        return None
    return next(f"{name}.weight" for name, module in network.named_modules() if module is table)


def with_head(adapter: AdapterSource) -> AdapterSource:
    """For a base whose head is its embedding, so that no tensor of it has a head's name: HEAD for what
    checkpoints of its kind, or their wrappers, call one.
    """
    found = [name for name in {*adapter.names, *adapter.saved} if is_head(name)]
    if len(found) > 1:  # these are not one thing
        return adapter
    return adapter.renamed(lambda name: f"{HEAD}.weight" if name in found else name)


def _identity(name: str, shape: tuple[int, ...]) -> Arrival:
    """A matrix that is as its checkpoint has it."""
    count = shape[0]
    source, times = np.zeros(count, np.int32), np.ones(count, np.float32)
    plus = np.zeros(count, np.float32)
    return Arrival(f"{HEAD}.weight", shape, (name,), source, np.arange(count), times, plus)


def kinds_of(described: Described) -> dict[str, Kind]:
    """The network's modules that hold matrices."""
    found: dict[str, Kind] = {}
    modules: Any = described.network().named_modules()
    for name, module in modules:
        if isinstance(module, nn.Linear):
            found[name] = "linear"
        elif isinstance(module, nn.Embedding):
            found[name] = "table"
        elif isinstance(module, SwitchLinear):
            found[name] = "experts"
        elif isinstance(module, HeadLinear):
            found[name] = "heads"
        elif "weight" in module and module.weight.ndim > 1:
            found[name] = "other"
    return found


def _lost(traced: RowTrace) -> list[str]:
    return [
        f"{shown(name.removesuffix('.weight'))} belongs to nothing in this base, or has another shape"
        for name in traced.lost
    ]


def _problem(arrival: Arrival, pairs: tuple[Pair, ...], kind: Kind | None) -> str | None:
    name = shown(pairs[0].names[0].removesuffix(".weight"))
    columns = {pair.shape[-1] for pair in pairs}
    if columns != {arrival.shape[-1]}:
        return f"A of {name} takes {max(columns)} numbers, and the base has {arrival.shape[-1]}"
    if (kind == "table") != pairs[0].table:
        return f"{name} is {'a' if kind == 'table' else 'no'} table here, and otherwise in the adapter"
    with_magnitude = [pair.magnitude is not None for pair in pairs]
    if any(with_magnitude) and (not all(with_magnitude) or (arrival.source < 0).any()):
        return f"{name} is joined with others here, and not all of them have magnitudes"
    if kind == "heads" and (len(pairs) > 1 or (arrival.source < 0).any()):
        return f"{name} is made of several matrices here"
    if any(pair.bias for pair in pairs) and kind == "heads":
        return f"{name} has a bias, which is not computed for what it becomes here"
    if kind == "table" and len(pairs) > 1:
        return f"{name} is joined with another table here"
    return None


def _has_table(traced: RowTrace, arrival: Arrival, kinds: Mapping[str, Kind]) -> bool:
    """Does the same tensor arrive in a table as well?"""
    others = (one for one in traced.arrivals if one.sources == arrival.sources)
    return any(kinds.get(_module(one)) == "table" for one in others)


def _whole(
    adapter: AdapterSource, described: Described, stored: Shapes, tied: str | None, network: Shapes
) -> tuple[str, ...]:
    if not adapter.whole:
        return ()
    _refuse_turned(adapter)
    head = f"{HEAD}.weight"
    own = {
        name: output_first(described, name, tensor.shape, adapter.form)
        for name, tensor in adapter.whole.items()
        if not (tied and name == head)
    }
    traced = trace(described, own, stored, adapter.form)
    grown = [
        f"{shown(name)} was {size(own[name])} in training, and is {size(network[name])} here"
        for name in traced.lost
        if name in network
    ]
    refuse(adapter.label, grown, TOKENS_HINT)
    problems = _lost(traced)
    for arrival in traced.arrivals:
        if (arrival.source < 0).any():
            problems.append(f"{shown(arrival.sources[0])} is only a part of {arrival.name} here")
    refuse(adapter.label, problems, HINT)
    names = {arrival.name for arrival in traced.arrivals}
    if tied and (head in adapter.whole or (tied in names and not adapter.unties)):
        names.add(head)
    return tuple(sorted(names))


def _refuse_turned(adapter: AdapterSource) -> None:
    """Rows are followed into the network, and mlx-lm's class has columns for them here."""
    turned = [name for name in adapter.whole if name.endswith(_TURNED)]
    problems = [f"{shown(name)} is turned over by mlx-lm, and not read from an adapter" for name in turned]
    refuse(adapter.label, problems, _FUSED_THERE)


def _rows(
    adapter: AdapterSource, described: Described, network: Shapes, tied: str | None
) -> dict[str, OwnRows]:
    found: dict[str, OwnRows] = {}
    head = f"{HEAD}.weight"
    for rows in adapter.rows:
        width = rows.values.shape[1]
        if tied and rows.name == head and width == network[tied][1]:
            name, height = head, network[tied][0]
        else:
            name, height = _table(adapter, rows, described, network)
        if max(rows.ids, default=0) >= height:
            raise SourceError(
                f"{adapter.label}: token {max(rows.ids)} has a row of its own, and {name} has {height:,} "
                "rows",
                hint=HINT,
            )
        found[name] = rows
    if tied in found and found.get(head, found[tied]).ids == found[tied].ids:
        found[head] = found[tied]  # one delta for both, which stands twice where the vocabulary has grown
    return found


def _table(adapter: AdapterSource, rows: OwnRows, described: Described, network: Shapes) -> tuple[str, int]:
    """The parameter that the rows are of, and how many it has."""
    width = rows.values.shape[1]
    heights = {shape[0] for shape in network.values() if len(shape) == 2 and shape[1] == width}
    shapes = [{rows.name: (height, width)} for height in sorted(heights)]
    arrivals = [one for shape in shapes for one in trace(described, shape, {}, adapter.form).arrivals]
    if len(arrivals) != 1 or len(arrivals[0].shape) != 2:
        raise SourceError(f"{adapter.label}: {shown(rows.name)} is not a table of this base", hint=HINT)
    (arrival,) = arrivals
    if (arrival.row != np.arange(arrival.shape[0])).any() or (arrival.times != 1).any():
        raise SourceError(f"{adapter.label}: rows of {shown(rows.name)} are not kept in order here")
    return arrival.name, arrival.shape[0]
