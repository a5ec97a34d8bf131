"""Where a prompt is paged."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.cache.marks import NEAR_TOKENS, page_marks

MARKS = st.lists(st.integers(-5, 120), max_size=12)


def marks(*asked: int, start: int = 0, stop: int = 100, branch: int = 0, spacing: int = 1) -> tuple[int, ...]:
    return page_marks(asked, start=start, stop=stop, branch=branch, spacing=spacing)


def test_a_prompt_without_marks_is_paged_before_its_last_token() -> None:
    assert marks() == (99,)


def test_a_mark_near_the_end_is_enough() -> None:
    assert marks(96) == (96,)
    assert marks(80) == (80, 99)


def test_marks_outside_what_is_read_do_not_count() -> None:
    assert marks(-3, 0, 10, 20, 95, 100, 400, start=10) == (20, 95)


def test_the_branch_is_a_mark() -> None:
    assert marks(95, branch=33) == (33, 95)
    assert marks(95, branch=95) == (95,)
    assert marks(95, branch=3, start=3) == (95,)


def test_lesser_marks_keep_their_distance() -> None:
    assert marks(10, 12, 40, 45, 60, 90, 95, spacing=30) == (10, 40, 90, 95)


def test_nothing_is_paged_of_one_token() -> None:
    assert marks(start=99) == ()


@given(MARKS, st.integers(0, 99), st.integers(0, 120), st.integers(1, 50))
def test_marks_ascend_between_start_and_stop(asked: list[int], start: int, branch: int, spacing: int) -> None:
    found = marks(*asked, start=start, branch=branch, spacing=spacing)
    assert list(found) == sorted({*found})
    assert all(start < mark < 100 for mark in found)
    assert 100 - max((start, *found)) <= NEAR_TOKENS
    inside = sorted({mark for mark in asked if start < mark < 100})
    assert {*inside[:1], *inside[-2:]} <= {*found}
    assert branch in found or not start < branch < 100
