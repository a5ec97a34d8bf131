"""What came together is told together, and nothing else is changed."""

from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from modelkit.output.joining import joined
from runtime.engine.request import TokenLogprob

ONE, TWO = TokenLogprob(1, -1.0, ()), TokenLogprob(2, -2.0, ())


def test_neighbours_of_one_kind_are_one() -> None:
    events: list[Event] = [
        Thinking("a", (1,)),
        Thinking("b", (2, 3)),
        Text("c", (4,), (ONE,)),
        Text("", (5,), (TWO,)),
        Text("d"),
        CallStart(0, "x", "f"),
        CallArguments(0, '{"a'),
        CallArguments(0, '": 1}'),
        CallEnd(0),
        CallStart(1, "y", "f"),
        CallArguments(1, "{}"),
        CallEnd(1),
        Text("e", (9,)),
    ]
    assert joined(events) == [
        Thinking("ab", (1, 2, 3)),
        Text("cd", (4, 5), (ONE, TWO)),
        CallStart(0, "x", "f"),
        CallArguments(0, '{"a": 1}'),
        CallEnd(0),
        CallStart(1, "y", "f"),
        CallArguments(1, "{}"),
        CallEnd(1),
        Text("e", (9,)),
    ]


def test_pieces_of_two_calls_stay_apart() -> None:
    events: list[Event] = [CallArguments(0, "{}"), CallArguments(1, "{}")]
    assert joined(events) == events
    assert joined([]) == []
