"""Loading a rank's share of a model: of everything else nothing but headers is read.

Every rank calls its network with the same steps in the same order, each with memory for its own layers
(`described.layout` says which). What the network gives has a meaning at rank 0 alone, which has the head.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from runtime.device import Device
from runtime.errors import CannotCut, TooLarge
from runtime.loaded import LoadedModel
from runtime.loading.load import LocalPart, begin_load, plan_to_cut, read_tensors
from runtime.loading.plan import LoadPlan, float_of, wanted_dtype
from runtime.models.registry.described import Described, describe
from runtime.nn.adapters.adapter import Adapter
from runtime.nn.adapters.low_rank import LowRanks
from runtime.ranks.calls import then_given
from runtime.ranks.group import Group
from runtime.ranks.pairs import Pairs, check_adapters
from runtime.ranks.pieces import Shard
from runtime.ranks.plan import Plan, Share
from runtime.ranks.ranges import Taking
from runtime.ranks.shards import Take, become_shard, splits_of
from runtime.ranks.slices import Headers, Noting, Slice, Sliced
from runtime.ranks.stage import become_stage, come_together, known_to_all, leave_head, stage_layout
from runtime.ranks.stage_rank import StageRank
from runtime.ranks.trunk import LayerChain, chain_of
from runtime.records import dataclass
from runtime.weights.fit import parameters_of


@dataclass(frozen=True, slots=True)
class Assignment:
    """What this rank loads of a model."""

    plan: Plan
    group: Group
    """The ranks that the plan is for, and which of them this is."""
    with_head: bool = False
    """The model's own draft head, too. Rank 0's alone."""
    copied: Collection[int] = ()
    """Layers of other ranks whose memory rank 0's draft reads: it has these, too. In stages only."""

    @property
    def share(self) -> Share:
        return self.plan.shares[self.group.rank]


def load_share(
    config: Mapping[str, Any],
    shards: Sequence[Path] | Mapping[str, mx.array],
    assigned: Assignment,
    *,
    on: Device | None = None,
    fixed: bool = False,
    advance: Callable[[int], object] = lambda _: None,
    adapters: Mapping[str, LowRanks] | None = None,
    sliced: tuple[Headers, Mapping[Slice, Path]] | None = None,
) -> LoadedModel:
    """As `load_model`, what is assigned to this rank. advance: as in `Loading.read`. adapters: the same, in
    the same order, on all ranks. sliced: for a rank that has not all files, the headers of all that is
    stored, and where files are of `slices_of`, each with one tensor under its stored name.

    Raises CannotCut besides, where plan, model and group are not of one kind, and WeightMismatch where an
    adapter does not fit.
    """
    plan, group = assigned.plan, assigned.group
    if plan.ranks != group.size:
        raise CannotCut(f"the plan is for {plan.ranks} ranks, and {group.size} are there")
    wanted = assigned.share.weight_bytes
    if on is not None and wanted > on.available_bytes > 0:
        raise TooLarge(wanted, on.available_bytes)
    cut = CutByPlan(assigned, () if isinstance(shards, Mapping) else shards, adapters or {})
    if sliced is not None:
        own = _sliced(config, *sliced, [*cut.files], on)
        cut, shards = replace(cut, sliced=own), own.stored
    begun = begin_load(config, shards, on=on, with_head=assigned.with_head, fixed=fixed, cut=cut)
    model = begun.read(on, advance)
    brought = {name: Adapter(model.network, own, model.dtype) for name, own in cut.own.items()}
    return replace(model, adapters=brought)


def slices_of(
    config: Mapping[str, Any],
    headers: Headers,
    assigned: Assignment,
    *,
    on: Device | None,
    adapters: Mapping[str, LowRanks],
) -> list[Slice]:
    """What `load_share` would read of what is stored, for the same `on` and assignment. Nothing is read.
    Raises what it raises.
    """
    noting, described = Noting(headers), describe(config)
    cut = CutByPlan(assigned, (), adapters)
    planned = plan_to_cut(described, config, noting.stored, on, cut, with_head=assigned.with_head)
    compute = wanted_dtype(on) or float_of(noting.stored)
    cutting = cut.begin(described, planned, compute, noting)
    beside = [array for _, fitted in planned.parts[1:] for array in fitted.values()]
    return noting.noted([*cutting.read(planned, adapters.values()), *beside])


def _sliced(
    config: Mapping[str, Any],
    headers: Headers,
    slices: Mapping[Slice, Path],
    files: Sequence[Path],
    on: Device | None,
) -> Sliced:
    """files: those that are here whole."""

    def read(paths: Sequence[Path]) -> dict[str, mx.array]:
        return read_tensors(paths, config, on, fixed=True)

    here = {one: read([path])[one.tensor] for one, path in slices.items()}
    here |= {Slice(name): array for name, array in read(files).items()}
    whole = [*files, *(path for one, path in slices.items() if not one.ranges)]
    stored = {one.tensor: array for one, array in here.items() if not one.ranges}
    return Sliced(headers, here, Taking(whole, stored))


@dataclass(frozen=True, slots=True)
class Cutting:
    """A network that has been cut."""

    held: LocalPart
    pairs: Pairs
    """What cuts adapters alike."""

    def read(self, planned: LoadPlan, adapters: Iterable[LowRanks]) -> list[mx.array]:
        """The arrays that are read for it: of blocks that stay, those; of codes in an order, that too."""
        arrays = [*self.held.part[1].values()]
        arrays += [array for brought in adapters for array in self.pairs.reads(brought)]
        blocks, orders = planned.holding.blocks, planned.holding.orders
        arrays += [orders[id(array)] for array in arrays if id(array) in orders]
        return [blocks[id(array)].rows if id(array) in blocks else array for array in arrays]


@dataclass(frozen=True, slots=True)
class CutByPlan:
    """What `load_model` does with a network of which this rank has a share (`runtime.loading.load.Cut`)."""

    assigned: Assignment
    files: Sequence[Path]
    """Where the tensors are, unless they are in memory."""
    adapters: Mapping[str, LowRanks] = field(default_factory=dict[str, LowRanks])
    """Of the whole network, by name."""
    own: dict[str, LowRanks] = field(default_factory=dict[str, LowRanks])
    """What this rank has of each, once the network is cut."""
    sliced: Sliced | None = None
    """What is here in place of files."""

    @property
    def ranks(self) -> int:
        return self.assigned.group.size

    @property
    def splits(self) -> bool:
        return self.assigned.plan.shards > 1

    @property
    def has_head(self) -> bool:
        return self.assigned.group.rank == 0

    def __call__(
        self, described: Described, planned: LoadPlan, dtype: mx.Dtype, stored: Mapping[str, mx.array]
    ) -> LocalPart:
        plan, group = self.assigned.plan, self.assigned.group
        group.shards = plan.shards
        chain = chain_of(planned.parts[0][0], described.layout, described.name)
        group.readers = group.size if chain.reads_ids else plan.shards
        cutting = self.begin(described, planned, dtype, self.sliced or Taking(self.files, stored))
        if self.sliced is not None:
            self.sliced.check(cutting.read(planned, self.adapters.values()))
        for name, brought in self.adapters.items():
            self.own[name] = cutting.pairs.cut(name, brought, head=self.has_head)
        return cutting.held

    def begin(self, described: Described, planned: LoadPlan, dtype: mx.Dtype, take: Take) -> Cutting:
        """All but adapters. take: takes ranges of what is stored."""
        network, fitted = planned.parts[0]
        plan, own = self.assigned.plan, self.assigned.share
        stage_rank = StageRank(self.assigned.group, plan.shards)
        layout = described.layout
        check_adapters(network, self.adapters)
        splits, whole = None, fitted
        if self.assigned.copied and self.splits:
            raise CannotCut("a draft reads the memory of layers of which each rank has some heads")
        copied = [layer for layer in self.assigned.copied if not own.start <= layer < own.stop]
        chain = chain_of(network, layout, described.name)
        reading = 0 if chain.reader is None else len(chain.reader.layers)
        for planned_for, there in ((plan.layers, len(chain.layers)), (plan.reading, reading)):
            if there != planned_for:
                raise CannotCut(f"the plan is for {planned_for} layers, and {there} are there")
        if self.splits:
            splits = splits_of(chain, layout, Shard(own.shard, plan.shards))
            here = {name: array for name, array in fitted.items() if _is_own(chain, name, own)}
            fitted, layout = become_shard(splits, here, stage_rank.sum, take, stage_rank.sums), splits.layout
        self._leave(chain, stage_rank, dtype, copied)
        leave_head(network, chain, stage_rank)
        left = parameters_of(network)
        mine = {name: array for name, array in fitted.items() if name in left}
        held = LocalPart(
            (network, mine), stage_layout(layout, chain, own.start, own.stop, copied), tuple(layout)
        )
        return Cutting(held, Pairs(network, splits, left, whole, take))

    def _leave(
        self, chain: LayerChain, stage_rank: StageRank, dtype: mx.Dtype, copied: Collection[int]
    ) -> None:
        """To others what they have of the layers, those of the encoder included."""
        plan, own = self.assigned.plan, self.assigned.share
        first, reader = plan.shares[0], chain.reader
        if plan.stages > 1:
            become_stage(chain, own.start, own.stop, first.stop, stage_rank, dtype, copied)
        elif self.splits:
            then_given(chain.trunk, come_together)
        if reader is not None:
            if plan.stages > 1:
                become_stage(reader, *own.reads, first.reads[1], stage_rank, dtype)
            then_given(reader.trunk, lambda x, _given: known_to_all(x, stage_rank))


def _is_own(chain: LayerChain, tensor: str, share: Share) -> bool:
    """Is it of the layers of this share, of what these borrow, or around all layers?"""
    own = _is_here(chain, tensor, share.start, share.stop)
    return own and (chain.reader is None or _is_here(chain.reader, tensor, *share.reads))


def _is_here(chain: LayerChain, tensor: str, start: int, stop: int) -> bool:
    place = chain.place(tensor)
    if place is None or start <= place < stop:
        return True
    lent = (one for one in chain.lent if one.owner == place and one.reaches(start, stop))
    return tensor.startswith(tuple(f"{chain.prefix(place)}{one.name}." for one in lent))
