"""Sums among the ranks of one stage: every part comes to all, in an order in which nobody waits for ever."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.ranks.stage_rank import SMALL_BYTES, moves
from tests.support import exchanging
from tests.support.ranks import Standing


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("shards", range(1, 9))
def test_all_have_all_parts_in_the_end(shards: int, small: bool) -> None:
    """With as much room between two ranks as three messages take, or with none: what is sent is away when it
    is taken.
    """
    left = [list(moves(shard, shards, small=small)) for shard in range(shards)]
    known = [{shard} for shard in range(shards)]
    under_way: dict[tuple[int, int], list[int]] = {}
    moved = True
    while moved:
        moved = False
        for shard, its in enumerate(left):
            if not its:
                continue
            sent, side, part = its[0]
            if sent:
                assert part in known[shard]
                queue = under_way.setdefault((shard, shard + side), [])
                peer = left[shard + side]
                taken = bool(peer) and peer[0][:2] == (False, -side) and not queue
                if not (len(queue) < 3 if small else taken):
                    continue
                queue.append(part)
            else:
                queue = under_way.get((shard + side, shard), [])
                if not queue:
                    continue
                assert queue.pop(0) == part
                known[shard].add(part)
            its.pop(0)
            moved = True
    assert left == [[]] * shards
    assert known == [set(range(shards))] * shards


@pytest.mark.parametrize(("shards", "count"), [(2, 5), (3, SMALL_BYTES // 4), (3, 3 << 20)])
def test_every_rank_of_a_stage_has_the_sum_in_the_order_of_ranks(
    crews: Callable[[int], Standing], tmp_path: Path, shards: int, count: int
) -> None:
    """Of three shards the fourth rank has none beside it. 12 MiB are more than a connection holds."""
    assert crews(4).do(tmp_path, exchanging.__name__, "seats", shards, count) == [True] * 4
