"""One splitter for all styles: what an answer means, whatever the pieces that it comes in."""

import json
import random

import pytest

from modelkit.output.events import CallArguments
from tests.support.answers import Case, cases, collected, folded, plain, split

CASES = [pytest.param(case, id=case.label) for case in cases()]


@pytest.mark.parametrize("case", CASES)
def test_an_answer_is_told_apart(case: Case) -> None:
    events = split(case, plain([case.text]))
    found = collected(events)
    assert (found.thinking or "") == case.thinking
    assert found.text == case.content
    calls = [(one.name, one.written or one.arguments) for one in found.tool_calls]
    assert calls == [(name, arguments) for name, arguments, *_ in case.calls]
    for one, (_, _, *identity) in zip(found.tool_calls, case.calls, strict=True):
        assert not identity or one.id == identity[0]


@pytest.mark.parametrize("case", CASES)
def test_every_chunking_gives_the_same_events(case: Case) -> None:
    text, random_ = case.text, random.Random(case.label)
    whole = folded(split(case, plain([text])))
    assert folded(split(case, plain(list(text)))) == whole
    for _ in range(6):
        cuts = sorted(random_.sample(range(len(text) + 1), min(len(text), random_.randint(1, 12))))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert folded(split(case, plain(parts))) == whole


@pytest.mark.parametrize("case", CASES)
def test_a_calls_arguments_are_the_beginning_of_json_at_every_moment(case: Case) -> None:
    written: dict[int, str] = {}
    for event in split(case, plain(list(case.text))):
        if isinstance(event, CallArguments):
            written[event.index] = written.get(event.index, "") + event.text
            assert begins_json(written[event.index]), written[event.index]


def begins_json(text: str) -> bool:
    """Some end of it makes it JSON."""
    decoder = json.JSONDecoder()
    try:
        decoder.raw_decode(text)
    except json.JSONDecodeError as error:
        # What is wrong is wrong at the end, or is the text that has not ended.
        return error.pos >= len(text.rstrip()) - 1 or error.msg.startswith("Unterminated string")
    return True
