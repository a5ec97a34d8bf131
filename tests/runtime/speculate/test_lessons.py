"""What was learned comes back from a file, whatever has happened to the file."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.speculate.lessons import Lesson, from_json, to_json

SHARES = st.tuples(st.floats(0, 1), st.integers(1, 10**6))
LESSONS = st.builds(
    lambda costs, grades: Lesson(
        costs,
        {grade: accepted for grade, (accepted, _) in grades.items()},
        {grade: depth for grade, (_, depth) in grades.items()},
    ),
    st.dictionaries(st.integers(1, 15), st.floats(0.01, 100)),
    st.dictionaries(
        st.integers(1, 3), st.tuples(st.lists(SHARES, max_size=15).map(tuple), st.integers(0, 15)), max_size=3
    ),
)
KEYS = st.tuples(st.sampled_from(["draft", "lookup"]), st.sampled_from([1, 2, 8]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)
GOOD: dict[str, Any] = {
    "version": 2,
    "drafters": [
        {
            "drafter": "draft",
            "rows": 1,
            "costs": [[2, 1.5], [4, 2.5]],
            "grades": [{"grade": 1, "depth": 2, "accepted": [[0.9, 40], [0.5, 20]]}],
        }
    ],
}


def changed(*path: Any, to: Any) -> Any:
    """GOOD with another value at one place."""
    value: Any = json.loads(json.dumps(GOOD))
    inner: Any = value["drafters"][0]
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return value


@given(st.dictionaries(KEYS, LESSONS, max_size=4))
def test_what_was_written_is_read(lessons: dict[tuple[str, int], Lesson]) -> None:
    assert from_json(json.loads(json.dumps(to_json(lessons)))) == lessons


@given(JSON)
def test_anything_can_stand_in_a_file(value: Any) -> None:
    assert from_json(value) == {}
    for path in (("costs",), ("grades",), ("grades", 0, "accepted"), ("rows",), ("drafter",), ("costs", 1)):
        from_json(changed(*path, to=value))


def test_another_version_is_left_alone() -> None:
    assert from_json(GOOD | {"version": 1}) == {}


@pytest.mark.parametrize("rows", [0, 3, -1, 1.0, True, "1", 1 << 20])
def test_a_size_of_batch_that_cannot_be_is_left_out(rows: Any) -> None:
    assert from_json(changed("rows", to=rows)) == {}


@pytest.mark.parametrize("cost", [0, -1.0, float("nan"), float("inf"), 1e9, True, "0.1", None])
def test_a_cost_that_cannot_be_is_left_out(cost: Any) -> None:
    lesson = from_json(changed("costs", 1, to=[4, cost]))["draft", 1]
    assert lesson.costs == {2: 1.5}


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "0.5", None])
def test_places_behind_one_that_cannot_be_read_are_left_out(share: Any) -> None:
    lesson = from_json(changed("grades", 0, "accepted", to=[[0.9, 40], [share, 20], [0.5, 10]]))["draft", 1]
    assert lesson.accepted == {1: ((0.9, 40),)}


def test_plain_rounds_cost_what_they_cost() -> None:
    assert from_json(changed("costs", to=[[0, 1.0], [2, 1.5]]))["draft", 1].costs == {2: 1.5}
