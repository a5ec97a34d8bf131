"""Each rank's free memory against its own part of what layers remember."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.cache.layout import Full
from runtime.ranks.free_room import MIB, said_of, tightest_of
from runtime.ranks.whole_model import Whole
from tests.support import crewing
from tests.support.ranks import Standing

LAYOUT = (Full(2, 64),) * 4


def test_a_rank_of_a_quarter_of_the_layers_has_room_for_four_times_what_is_free() -> None:
    whole = Whole(LAYOUT, frozenset({0, 2, 3}))
    assert said_of(whole, 12 * MIB, 2 * MIB) == (10, 40)


def test_what_is_free_may_be_unknown_or_of_no_matter() -> None:
    unknown = said_of(Whole(LAYOUT, frozenset({0})), 0, 0)
    assert said_of(Whole(LAYOUT, frozenset(range(4))), MIB, 0) == unknown
    assert tightest_of([unknown, unknown]).room_bytes > 1 << 60
    assert tightest_of([unknown, (3, 4)]).room_bytes == 4 * MIB


def test_the_rank_that_has_least_room_is_named_and_not_who_has_least_memory() -> None:
    found = tightest_of([(10, 40), (20, 30)])
    assert (found.rank, found.room_bytes) == (1, 30 * MIB)
    assert str(found) == f"rank 1 has {20 * MIB:,} bytes free for its part"


def test_a_rank_that_spares_more_than_there_is_has_none() -> None:
    assert said_of(Whole(LAYOUT, frozenset()), MIB, 2 * MIB) == (0, 0)


@pytest.mark.parametrize("cut", ["stages", "shards"])
def test_what_another_rank_has_no_memory_for_is_refused_and_all_go_on(
    crews: Callable[[int], Standing], tmp_path: Path, cut: str
) -> None:
    (refused, count), ended = crews(2).do(tmp_path, crewing.__name__, "short_of_memory", "llama", cut)
    assert "as rank 1 has 0 bytes free for its part" in refused
    assert (count, ended) == (12, "ended")
