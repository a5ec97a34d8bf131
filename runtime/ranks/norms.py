"""Norms over numbers of which each rank has a part: sums of squares are exchanged, one for each token and
each part of the channels that is normed apart.

What a token's sum comes to does not depend on which others are read with it, so that the bits of a row are
the same however its prompt was cut.
"""

from collections.abc import Callable

import mlx.core as mx

from runtime.errors import CannotCut
from runtime.nn import ops
from runtime.nn.gated_norm import GatedRMSNorm
from runtime.ranks.pieces import Shard
from runtime.records import dataclass

Sum = Callable[[mx.array], mx.array]


@dataclass(frozen=True, slots=True)
class Place:
    """Where among the sums of all ranks this one's stands."""

    index: int
    count: int
    size: int
    """Channels that are normed together, on all ranks that have some of them. One that several ranks have
    counts as often.
    """

    @classmethod
    def of(cls, shard: Shard, own: int, groups: int = 1) -> "Place":
        """own: channels of each rank. groups: of all channels, each for several ranks. CannotCut where ranks
        have parts of more than one.
        """
        if shard.count % groups:
            raise CannotCut(f"its norm runs over channels of several ranks, in {groups} groups")
        return cls(shard.index * groups // shard.count, groups, own * (shard.count // groups))

    def placed(self, x: mx.array) -> mx.array:
        """[..., 1] -> [..., count], zeros in the places of others."""
        return x if self.count == 1 else x * (mx.arange(self.count) == self.index)

    def own(self, sums: mx.array) -> mx.array:
        return sums[..., self.index : self.index + 1]


class Parted:
    """What norms have in common of which a rank has a part."""

    total: Sum
    """Over the ranks."""

    def over(self, x: mx.array, place: Place, eps: float) -> mx.array:
        """float32 [..., part] -> x over the root of the mean square of all channels."""
        sums = self.total(place.placed(x.square().sum(axis=-1, keepdims=True)))
        return x * mx.rsqrt(place.own(sums) / place.size + eps)


class PartedGatedNorm(Parted, GatedRMSNorm):
    """A `GatedRMSNorm`, some of whose channels are here."""

    def __init__(self, whole: GatedRMSNorm, place: Place) -> None:
        order = "gate first" if whole.gate_first else "norm first"
        activation = "silu" if whole.activation == "silu" else "sigmoid"
        super().__init__(whole.weight.size, whole.eps, order=order, activation=activation)
        self._place = place

    def __call__(self, x: mx.array, gate: mx.array) -> mx.array:
        wide = gate.astype(mx.float32)
        opened = ops.table.silu(wide) if self.activation == "silu" else mx.sigmoid(wide)
        x = x.astype(mx.float32)
        if self.gate_first:
            return (self.over(x * opened, self._place, self.eps) * self.weight).astype(gate.dtype)
        return (self.over(x, self._place, self.eps) * self.weight * opened).astype(gate.dtype)
