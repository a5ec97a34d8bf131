"""Norms over numbers of which each rank has a part: sums of squares are exchanged, one for each token and
each part of the channels that is normed apart; and each rank's largest in the same message, where what is
normed is rounded by that of all.

What a token's sum comes to does not depend on which others are read with it, so that the bits of a row are
the same however its prompt was cut.
"""

from collections.abc import Callable

import mlx.core as mx

from runtime.errors import CannotCut
from runtime.nn.gated_norm import GatedRMSNorm
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm, UnitNorm
from runtime.nn.operations import ops
from runtime.nn.rounding import RoundingNorm, rounded
from runtime.ranks.pieces import Shard
from runtime.records import dataclass

Sum = Callable[[mx.array], mx.array]


@dataclass(frozen=True, slots=True)
class SumPlace:
    """Where among the sums of all ranks this one's stands."""

    index: int
    count: int
    size: int
    """Channels that are normed together, on all ranks that have some of them. One that several ranks have
    counts as often.
    """

    @classmethod
    def of(cls, shard: Shard, own: int, groups: int = 1) -> "SumPlace":
        """own: channels of each rank. groups: of all channels, each for several ranks. CannotCut where ranks
        have parts of more than one.
        """
        if shard.count % groups:
            raise CannotCut(f"its norm runs over channels of several ranks, in {groups} groups")
        return cls(shard.index * groups // shard.count, groups, own * (shard.count // groups))

    def total(self, squares: mx.array, total: Sum) -> mx.array:
        """[..., 1] -> the same of all channels of this rank's group."""
        if self.count == 1:
            return total(squares)
        return total(placed(squares, self.index, self.count))[..., self.index : self.index + 1]


def placed(x: mx.array, index: int, count: int) -> mx.array:
    """[..., 1] -> [..., count], zeros in the places of others."""
    return x * (mx.arange(count) == index)


class PartedGatedNorm(GatedRMSNorm):
    """A `GatedRMSNorm`, some of whose channels are here."""

    total: Sum
    """Over the ranks."""

    def __init__(self, whole: GatedRMSNorm, place: SumPlace) -> None:
        order = "gate first" if whole.gate_first else "norm first"
        activation = "silu" if whole.activation == "silu" else "sigmoid"
        super().__init__(whole.weight.size, whole.eps, order=order, activation=activation)
        self._place = place

    def __call__(self, x: mx.array, gate: mx.array) -> mx.array:
        wide = gate.astype(mx.float32)
        opened = ops.table.silu(wide) if self.activation == "silu" else mx.sigmoid(wide)
        x = x.astype(mx.float32) * opened if self.gate_first else x.astype(mx.float32)
        mean = self._place.total(_squares(x), self.total) / self._place.size
        y = x * mx.rsqrt(mean + self.eps) * self.weight
        return (y if self.gate_first else y * opened).astype(gate.dtype)


class PartedNorm(Module):
    """An `RMSNorm`, some of whose channels are here; kernels do not take it for one."""

    total: Sum
    """Over the ranks."""

    def __init__(self, whole: RMSNorm, shard: Shard) -> None:
        super().__init__()
        self.weight, self.eps = whole.weight, whole.eps
        self._shard, self._size = shard, whole.weight.size
        self._rounds = isinstance(whole, RoundingNorm) and whole.rounds

    def __call__(self, x: mx.array) -> mx.array:
        wide = x.astype(mx.float32)
        if not self._rounds:
            return (wide * self._over(self.total(_squares(wide))) * self.weight).astype(x.dtype)
        weighted = wide * self.weight
        largest = placed(mx.abs(weighted).max(axis=-1, keepdims=True), *self._at)
        sums = self.total(mx.concatenate([_squares(wide), largest], axis=-1))
        over = self._over(sums[..., :1])
        return rounded((weighted * over).astype(x.dtype), sums[..., 1:].max(axis=-1, keepdims=True) * over)

    def _over(self, squares: mx.array) -> mx.array:
        return mx.rsqrt(squares / self._size + self.eps)

    @property
    def _at(self) -> tuple[int, int]:
        return self._shard.index, self._shard.count


class PartedUnit(Module):
    """A `UnitNorm`, some of whose channels are here."""

    total: Sum
    """Over the ranks."""

    def __init__(self, whole: UnitNorm) -> None:
        super().__init__()
        self.eps = whole.eps

    def __call__(self, x: mx.array) -> mx.array:
        wide = x.astype(mx.float32)
        return (wide * mx.rsqrt(self.total(_squares(wide)) + self.eps)).astype(x.dtype)


def _squares(x: mx.array) -> mx.array:
    return x.square().sum(axis=-1, keepdims=True)
