"""Large answers are the JSON that they would be in one, and are written with a turn for others in between."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse

from modelkit.server import json_parts as parts
from modelkit.server.json_parts import in_parts
from modelkit.server.log import PromptLog
from modelkit.server.trace import Trace

SINGLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SINGLE | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)


@given(VALUES, st.integers(1, 4))
def test_it_is_the_json_of_the_whole(value: Any, part: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "_PART", part)
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
    others_run(lambda: in_parts({"rows": rows}))


def test_others_have_their_turn_while_a_prompt_is_written_down(tmp_path: Path) -> None:
    log = PromptLog(tmp_path / "prompts.jsonl")
    others_run(lambda: log.write(Trace("one", "POST", "/", ""), {"prompt": [7] * 1_000_000}))
    log.close()


def others_run(work: Callable[[], object]) -> None:
    """While it does."""
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
        work()
        assert len(turns) - before > 5
    finally:
        ended.set()
        thread.join()
