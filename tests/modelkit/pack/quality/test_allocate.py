"""Options and a budget: the best choice, found by trying all where that is possible."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.pack.quality.allocate import Option, allocate, hull, least

OPTION = st.builds(Option, st.just("x"), st.integers(1, 40), st.floats(0, 10))
GROUPS = st.lists(st.lists(OPTION, min_size=1, max_size=4), min_size=1, max_size=4)


@given(groups=GROUPS, more=st.integers(0, 80))
def test_never_above_the_budget_and_close_to_the_best(groups: list[list[Option]], more: int) -> None:
    budget = least(groups) + more
    chosen = allocate(groups, budget)
    assert sum(one.nbytes for one in chosen.options) == chosen.nbytes <= budget
    best = min(
        sum(one.cost for one in some)
        for some in product(*groups)
        if sum(one.nbytes for one in some) <= budget
    )
    # What greedy choice leaves on the table is at most one step of one group.
    step = max((a.cost for group in groups for a in group), default=0.0)
    assert sum(one.cost for one in chosen.options) <= best + step + 1e-9


def test_bytes_go_where_they_win_most() -> None:
    calm = [Option("q2", 2, 0.2), Option("q4", 4, 0.1)]
    tender = [Option("q2", 2, 9.0), Option("q4", 4, 1.0)]
    assert [one.name for one in allocate([calm, tender], 6).options] == ["q2", "q4"]
    assert [one.name for one in allocate([calm, tender], 8).options] == ["q4", "q4"]


def test_a_step_that_does_not_fit_lets_others_pass() -> None:
    large = [Option("q2", 2, 100.0), Option("q8", 90, 0.0)]
    small = [Option("q2", 2, 1.0), Option("q4", 4, 0.0)]
    assert [one.name for one in allocate([large, small], 8).options] == ["q2", "q4"]


def test_the_hull_leaves_out_what_is_never_best() -> None:
    options = [Option("a", 2, 10.0), Option("b", 3, 9.0), Option("c", 4, 1.0), Option("d", 5, 1.0)]
    assert [one.name for one in hull(options)] == ["a", "c"]


@pytest.mark.parametrize("budget", [4, 5])
def test_the_least_is_possible(budget: int) -> None:
    group = [Option("q2", 2, 1.0), Option("q4", 4, 0.0)]
    assert allocate([group, group], budget).nbytes == 4
