"""What all ranks have read of a model that they start, in turns that fit each other."""

import pytest

from modelkit.errors import LoadError
from modelkit.ranks.progress import STOP_BYTES, STOPS, Pace, Progress

SHARES = (STOP_BYTES * 30, STOP_BYTES * 3)


def read(rank: int, sizes: int, said: list[int]) -> tuple[int, list[int], Progress]:
    """How often a rank says something, what it tells, and what is known in the end."""
    told, progress = list[int](), Progress(2)

    def agree(done_bytes: int) -> list[int]:
        said.append(done_bytes)
        return [done_bytes, SHARES[1 - rank]]

    pace = Pace(SHARES, rank, agree, told.append, progress)
    for _ in range(SHARES[rank] // sizes):
        pace.read(sizes)
    pace.finish()
    return len(said), told, progress


@pytest.mark.parametrize("sizes", [STOP_BYTES // 8, STOP_BYTES * 3])
def test_ranks_with_other_shares_and_tensors_stop_as_often(sizes: int) -> None:
    assert {read(rank, sizes, [])[0] for rank in (0, 1)} == {STOPS + 1}


def test_all_of_it_is_told_once() -> None:
    _, told, progress = read(0, STOP_BYTES, [])
    assert sum(told) == sum(SHARES)
    assert len(told) > STOPS / 2
    assert progress.text() == ""


def test_what_is_under_way_is_said() -> None:
    progress = Progress(2)
    progress.at("fetched", 3_000_000, 2_000_000_000)
    assert progress.text() == ": 3 MB of 2 GB fetched by 2 machines"


def test_a_small_model_is_read_without_a_stop() -> None:
    said = list[int]()
    pace = Pace((5, 5), 0, lambda done: said.append(done) or [5, 5], lambda _: None, Progress(2))
    pace.read(5)
    assert said == []


def test_who_ends_it_does_so_while_the_others_can_hear_of_it() -> None:
    def stop(_count: int) -> None:
        raise KeyboardInterrupt

    said = list[int]()
    pace = Pace((5, 5), 0, lambda done: said.append(done) or [5, 5], stop, Progress(2))
    with pytest.raises(KeyboardInterrupt):
        pace.finish()
    assert said == []


def test_a_problem_of_another_rank_is_known_to_all() -> None:
    def refuse(_done: int) -> list[int]:
        raise LoadError("rank 1 says: no room")

    pace = Pace((5, 5), 0, refuse, lambda _: None, Progress(2))
    with pytest.raises(LoadError, match="no room"):
        pace.finish()
    assert pace.failed
