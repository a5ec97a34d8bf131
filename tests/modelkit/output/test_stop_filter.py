"""Stop strings in events: found in text alone, whatever the pieces, and ids stay with their text."""

from hypothesis import given
from hypothesis import strategies as st

from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from modelkit.output.stop_filter import StopFilter
from runtime.engine.request import TokenLogprob

PARTS = st.lists(st.text("ab\n", max_size=3), max_size=12)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3)


def through(events: list[Event], stops: list[str]) -> tuple[list[Event], str | None]:
    stopping, out = StopFilter(stops), list[Event]()
    for event in events:
        out += stopping.push(event)
    if stopping.matched is None:
        out += stopping.finish()
    return out, stopping.matched


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@given(parts=PARTS, stops=STOPS)
def test_text_ends_before_the_first_stop(parts: list[str], stops: list[str]) -> None:
    whole = "".join(parts)
    events: list[Event] = [Text(part, (n,), (TokenLogprob(n, -1.0),)) for n, part in enumerate(parts)]
    out, matched = through(events, stops)
    first = min([at for stop in stops if (at := whole.find(stop)) >= 0], default=None)
    assert text_of(out) == (whole if first is None else whole[:first])
    assert (matched is None) == (first is None)
    texts = [event for event in out if isinstance(event, Text)]
    ids = [one for event in texts for one in event.ids]
    assert ids == list(range(len(ids)))
    assert ids == [log.id for event in texts for log in event.logprobs]
    if first is None:
        assert len(ids) == len(parts)
    else:  # a token is there as soon as any of its text is
        begins = [len("".join(parts[:n])) for n in range(len(parts))]
        assert all(n in ids for n, at in enumerate(begins) if parts[n] and at < first)
        assert all(begins[n] <= first for n in ids)


@given(parts=PARTS)
def test_thinking_and_arguments_are_not_searched(parts: list[str]) -> None:
    events: list[Event] = [
        *(Thinking(part) for part in parts),
        CallStart(0, "call_1", "f"),
        *(CallArguments(0, part) for part in parts),
        CallEnd(0),
        Text("ok"),
    ]
    assert through(events, ["a", "b", "\n"]) == (events, None)


def test_held_text_comes_before_what_follows() -> None:
    out, matched = through([Text("a\n"), CallStart(0, "call_1", "f"), CallEnd(0), Text("\nb")], ["\n\n"])
    assert out == [Text("a"), Text("\n"), CallStart(0, "call_1", "f"), CallEnd(0), Text("\nb")]
    assert matched is None


def test_the_bytes_of_a_stop_string_stay_with_it() -> None:
    parts: list[Event] = [
        Text("a", (0,)),
        Text("", (1,)),
        Text("", (2,)),
        Text("\u20ac", (3,)),
        Text("", (4,)),
    ]
    assert through(parts, ["\u20ac"]) == ([Text("a", (0,))], "\u20ac")
    assert through(parts, ["\u20acb"]) == (parts, None)


def test_nothing_comes_behind_a_stop() -> None:
    stopping = StopFilter(["END"])
    assert stopping.push(Text("xEND")) == [Text("x")]
    assert stopping.matched == "END"
    assert stopping.push(Thinking("more")) == stopping.push(Text("more")) == []
