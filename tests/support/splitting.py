"""Answers told apart, and what is asked of the calls in them."""

import json
import re
from collections.abc import Sequence

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Style
from modelkit.output.events import CallArguments, Event
from modelkit.output.pieces import Piece
from modelkit.output.splitter import splitter_for

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def events_of(
    style: Style, pieces: Sequence[Piece], opening: Opening | None = None, tools: object = TOOLS
) -> list[Event]:
    splitter = splitter_for(style, opening or Opening(), tools)
    events = [event for piece in pieces for event in splitter.push(piece)]
    return events + splitter.finish()


def assert_json_at_every_moment(events: Sequence[Event]) -> None:
    """The arguments of each call are, wherever they have got to, the beginning of a JSON object."""
    written: dict[int, str] = {}
    for event in events:
        if isinstance(event, CallArguments):
            written[event.index] = written.get(event.index, "") + event.text
            json.loads(completed(written[event.index]))


def completed(text: str) -> str:
    """The beginning of an object in the JSON that the splitter writes, with an end put behind."""
    closers, inside = "", False
    for part in re.findall(r'\\.|["{}\[\]]', text, re.DOTALL):
        if part == '"':
            inside = not inside
        elif not inside and part in "{[":
            closers = ("}" if part == "{" else "]") + closers
        elif not inside and part in "}]":
            assert closers[0] == part
            closers = closers[1:]
    text += '"' if inside else ""
    if closers.startswith("}") and re.search(r'[{,] ?"([^"\\]|\\.)*"$', text, re.DOTALL):
        text += ":"  # a key
    if text.endswith((":", ": ")):
        text += "0"
    elif text.endswith((",", ", ")):
        text += "0" if closers.startswith("]") else '"":0'
    return text + closers
