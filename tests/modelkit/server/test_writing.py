"""Large answers are the JSON that they would be in one, and are written with a turn for others in between."""

import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse

from modelkit.server import writing
from modelkit.server.writing import in_parts

SINGLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SINGLE | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)


@given(VALUES, st.integers(1, 4))
def test_it_is_the_json_of_the_whole(value: Any, part: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "_PART", part)
        assert in_parts(value) == JSONResponse(value).body


@pytest.mark.parametrize(
    "rows",
    [
        [[0.1] * 1000] * 1000,
        [{"a": 0.1}] * 200_000,
        [0.1] * 1_000_000,
        [{"a": [{"b": [[0.1] * 20] * 20}] * 3000}],
    ],
)
def test_others_have_their_turn(rows: list[Any]) -> None:
    turns, ended = list[int](), threading.Event()

    def others() -> None:
        while not ended.wait(0.001):
            turns.append(1)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        while not turns:
            time.sleep(0.001)
        before = len(turns)
        in_parts({"rows": rows})
        assert len(turns) - before > 5
    finally:
        ended.set()
        thread.join()
