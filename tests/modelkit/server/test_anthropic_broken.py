"""A call whose arguments broke says what the model wrote, where an `input` must be an object."""

import json
from collections.abc import Sequence

import pytest

from modelkit.output.events import CallArguments, CallEnd, CallStart, Event
from modelkit.server.anthropic.blocks import Blocks, Grow
from modelkit.server.anthropic.invalid_arguments import ended

WHOLE = '{"a": "x\\n\\u00e9 y", "b": [1.5e3, true, {"c": null, "d": false}], "e": -2, "f": {}}'


def test_any_beginning_ends_as_an_object_with_all_that_was_written() -> None:
    for place in range(len(WHOLE)):
        found = json.loads(WHOLE[:place] + ended(WHOLE[:place], "oops}"))
        assert found["INVALID_JSON"] == WHOLE[:place] + "oops}"


def test_what_is_no_object_is_left_as_it_is() -> None:
    assert (ended("[1", "oops"), ended("x", "oops")) == ("", "")


@pytest.mark.parametrize(
    ("pieces", "rest", "told"),
    [
        (['{"a": ', "1"], "oops}", {"a": 1, "INVALID_JSON": '{"a": 1oops}'}),
        ([], "oops", {"INVALID_JSON": "oops"}),
        (['{"a": 1}'], "}", {"a": 1}),
        (['{"a": '], "", None),
    ],
    ids=["broken", "nothing sound", "one bracket too many", "cut"],
)
def test_the_pieces_of_a_call(pieces: Sequence[str], rest: str, told: object) -> None:
    events: list[Event] = [CallStart(0, "call_1", "f"), *(CallArguments(0, one) for one in pieces)]
    blocks = Blocks(lambda _: "")
    steps = [step for event in [*events, CallEnd(0, rest)] for step in blocks.push(event)]
    written = "".join(step.delta["partial_json"] for step in steps if isinstance(step, Grow))
    assert (json.loads(written) if told is not None else None) == told
    assert told is not None or written == "".join(pieces)
