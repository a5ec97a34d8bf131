"""Loading a rank's share of a model: of everything else nothing but headers is read.

Every rank calls its network with the same steps in the same order, each with memory for its own layers
(`described.layout` says which). What the network gives has a meaning at rank 0 alone, which has the head.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from runtime.device import Device
from runtime.errors import CannotCut, TooLarge
from runtime.loaded import Held, LoadedModel, load_model
from runtime.models.architecture import Described
from runtime.nn.adapters import Adapter
from runtime.nn.low_rank import LowRanks
from runtime.planned import Part
from runtime.ranks.calls import then
from runtime.ranks.group import Group
from runtime.ranks.pairs import Pairs, check_adapters
from runtime.ranks.pieces import Shard
from runtime.ranks.plan import Plan, Share
from runtime.ranks.ranges import Taking
from runtime.ranks.seat import Seat
from runtime.ranks.shards import become_shard, splits_of
from runtime.ranks.stage import become_stage, come_together, leave_head, stage_layout
from runtime.ranks.trunk import chain_of
from runtime.records import dataclass


def load_share(
    config: Mapping[str, Any],
    shards: Sequence[Path] | Mapping[str, mx.array],
    plan: Plan,
    group: Group,
    *,
    on: Device | None = None,
    with_head: bool = False,
    fixed: bool = False,
    told: Callable[[int], object] = lambda _: None,
    adapters: Mapping[str, LowRanks] | None = None,
) -> LoadedModel:
    """As `load_model`, what this rank has by the plan. A draft head is rank 0's. adapters: the same, in the
    same order, on all ranks.

    Raises CannotCut besides, where plan, model and group are not of one kind, and WeightMismatch where an
    adapter does not fit.
    """
    if plan.ranks != group.size:
        raise CannotCut(f"the plan is for {plan.ranks} ranks, and {group.size} are there")
    wanted = plan.shares[group.rank].weight_bytes
    if on is not None and wanted > on.available_bytes > 0:
        raise TooLarge(wanted, on.available_bytes)
    cut = CutByPlan(plan, group, () if isinstance(shards, Mapping) else shards, adapters or {})
    model = load_model(config, shards, on=on, with_head=with_head, fixed=fixed, cut=cut, told=told)
    brought = {name: Adapter(model.network, own, model.dtype) for name, own in cut.own.items()}
    return replace(model, adapters=brought)


@dataclass(frozen=True, slots=True)
class CutByPlan:
    """What `load_model` does with a network of which this rank has a share (`runtime.loaded.Cut`)."""

    plan: Plan
    group: Group
    files: Sequence[Path]
    """Where the tensors are, unless they are in memory."""
    adapters: Mapping[str, LowRanks] = field(default_factory=dict[str, LowRanks])
    """Of the whole network, by name."""
    own: dict[str, LowRanks] = field(default_factory=dict[str, LowRanks])
    """What this rank has of each, once the network is cut."""

    @property
    def ranks(self) -> int:
        return self.group.size

    @property
    def splits(self) -> bool:
        return self.plan.shards > 1

    @property
    def has_head(self) -> bool:
        return self.group.rank == 0

    def __call__(
        self, described: Described, part: Part, dtype: mx.Dtype, stored: Mapping[str, mx.array]
    ) -> Held:
        network, fitted = part
        seat = Seat(self.group, self.plan.shards)
        own = self.plan.shares[self.group.rank]
        layout = described.layout
        check_adapters(network, self.adapters)
        take, splits, whole = Taking(self.files, stored), None, fitted
        chain = chain_of(network, layout, described.name)
        if len(chain.layers) != self.plan.layers:
            raise CannotCut(f"the plan is for {self.plan.layers} layers, and {len(chain.layers)} are there")
        if self.plan.shards > 1:
            splits = splits_of(chain, layout, Shard(own.shard, self.plan.shards))
            here = {name: array for name, array in fitted.items() if _is_own(chain.place(name), own)}
            fitted, layout = become_shard(splits, here, seat.sum, take), splits.layout
        if self.plan.stages > 1:
            first = self.plan.shares[0].stop
            become_stage(network, chain, own.start, own.stop, first, seat, dtype)
        elif self.plan.shards > 1:
            then(chain.layers[-1], come_together)
            leave_head(network, chain, seat)
        left = dict(tree_flatten(network.parameters()))
        pairs = Pairs(network, splits, left, whole, take)
        for name, brought in self.adapters.items():
            self.own[name] = pairs.cut(name, brought, head=self.has_head)
        mine = {name: array for name, array in fitted.items() if name in left}
        return Held((network, mine), stage_layout(layout, chain, own.start, own.stop), tuple(layout))


def _is_own(place: int | None, share: Share) -> bool:
    """place: of a layer; None: around them."""
    return place is None or share.start <= place < share.stop
