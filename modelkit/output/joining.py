"""Neighbours of one kind as one event: what several tokens brought is said once.

Whoever reads them pays for each event, on both ends of a connection, and nobody sees letters come one by one
that come together.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from modelkit.output.events import CallArguments, Event, Text, Thinking


def joined(events: Iterable[Event]) -> list[Event]:
    """Texts, thoughts, and pieces of one call's arguments, in their order; all others stay as they are."""
    events, found = list(events), list[Event]()
    if len(events) < 2:
        return events
    if all(type(event) is Text for event in events):  # nearly always
        return [*_one(events)]
    for _, group in groupby(events, _kind):
        found += _one(list(group))
    return found


def _kind(event: Event) -> object:
    match event:
        case Text() | Thinking():
            return type(event)
        case CallArguments():
            return event.index
        case _:
            return event


def _one(events: Sequence[Event]) -> Sequence[Event]:
    first = events[0]
    if len(events) == 1 or not isinstance(first, Text | Thinking | CallArguments):
        return events
    text = "".join(event.text for event in events if isinstance(event, Text | Thinking | CallArguments))
    if isinstance(first, CallArguments):
        return [CallArguments(first.index, text)]
    told = [event for event in events if isinstance(event, Text | Thinking)]
    ids = tuple(token for event in told for token in event.ids)
    return [type(first)(text, ids, tuple(one for event in told for one in event.logprobs))]
