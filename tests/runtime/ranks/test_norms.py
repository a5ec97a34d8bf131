"""Norms of which each rank has a part."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import mlx.core as mx
import pytest

from runtime.errors import CannotCut
from runtime.nn.gated_norm import GatedRMSNorm, Order
from runtime.nn.norm import RMSNorm
from runtime.nn.rounding import RoundingNorm
from runtime.ranks.norms import PartedGatedNorm, PartedNorm, SumPlace
from runtime.ranks.pieces import Shard

CHANNELS = 48
X, GATE, WEIGHT = mx.random.normal((3, 2, 5, CHANNELS), key=mx.random.key(4))


def together(ranks: int, answer: Callable[[int, Callable[[mx.array], mx.array]], Any]) -> list[Any]:
    """What each of these ranks says by itself and by the sums of all. answer(rank, total)."""
    told: list[list[mx.array]] = [[] for _ in range(ranks)]

    def noting(rank: int) -> Callable[[mx.array], mx.array]:
        return lambda x: told[rank].append(x) or x

    for rank in range(ranks):
        answer(rank, noting(rank))
    sums = [reduce(mx.add, one) for one in zip(*told, strict=True)]
    found: list[Any] = []
    for rank in range(ranks):
        left = iter(sums)
        found.append(answer(rank, lambda _, left=left: next(left)))
    return found


@pytest.mark.parametrize("order", ["gate first", "norm first"])
@pytest.mark.parametrize(("ranks", "groups"), [(2, 1), (4, 2), (3, 1)])
def test_parts_of_a_gated_norm_make_the_whole(order: Order, ranks: int, groups: int) -> None:
    whole = GatedRMSNorm(CHANNELS, 1e-5, groups=groups, order=order)
    whole.weight = WEIGHT[0, 0]
    own = CHANNELS // ranks

    def part(rank: int, total: Callable[[mx.array], mx.array]) -> mx.array:
        norm = PartedGatedNorm(whole, SumPlace.of(Shard(rank, ranks), own, groups))
        some = slice(rank * own, (rank + 1) * own)
        norm.total, norm.weight = total, whole.weight[some]
        return norm(X[..., some], GATE[..., some])

    got, expected = mx.concatenate(together(ranks, part), axis=-1), whole(X, GATE)
    assert mx.abs(got - expected).max() < 1e-5 * mx.abs(expected).max()


@pytest.mark.parametrize("edges", [(0, 24, 48), (0, 16, 48), (0, 12, 24, 36, 48)])
@pytest.mark.parametrize("rounds", [False, True])
def test_parts_of_a_norm_make_the_whole(edges: tuple[int, ...], *, rounds: bool) -> None:
    """Also where ranks have parts of several sizes, and where what is normed is rounded by the largest."""
    whole = RoundingNorm(CHANNELS, 1e-5, rounds=True) if rounds else RMSNorm(CHANNELS, 1e-5)
    whole.weight = WEIGHT[0, 0]

    def part(rank: int, total: Callable[[mx.array], mx.array]) -> mx.array:
        norm = PartedNorm(whole, Shard(rank, len(edges) - 1))
        some = slice(edges[rank], edges[rank + 1])
        norm.total, norm.weight = total, whole.weight[some]
        return norm(X[..., some])

    got, expected = mx.concatenate(together(len(edges) - 1, part), axis=-1), whole(X)
    assert mx.abs(got - expected).max() < 1e-5 * mx.abs(expected).max()


def test_parts_of_several_groups_are_refused() -> None:
    with pytest.raises(CannotCut, match="its norm runs over channels of several ranks, in 2 groups"):
        SumPlace.of(Shard(0, 3), 16, 2)
