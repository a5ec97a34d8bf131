"""Answers of every output style, as data: what a model writes, and what it means.

`tests/data/styles/*.jsonl`, one case a line:
  style     the row's name in templates/styles.json
  text      the answer as the model writes it, special tokens spelt out
  tools     the request's, in OpenAI's shape; a name of tools.json stands for that one; left out for none
  place, written    where the answer begins: an Opening's fields; left out for a prompt that opened nothing
  thinking, content what is expected; left out for nothing
  origin    where the case is from; adapted: where a row says otherwise what blanks are the marks' own
  calls     [name, arguments] or [name, arguments, id]: arguments are an object, or the text as far as it came

The cases of answers_llama_cpp.jsonl are those of llama.cpp's tests/test-chat.cpp (MIT), with the names of its
templates.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Style
from modelkit.chat.styles.table import style_named
from modelkit.output.collected import Collected
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from modelkit.output.pieces import Piece
from modelkit.output.splitter import splitter_for

FOLDER = Path(__file__).resolve().parents[1] / "data" / "styles"


@dataclass(frozen=True)
class Case:
    """One answer."""

    label: str
    style: Style
    text: str
    tools: tuple[dict[str, Any], ...]
    opening: Opening
    thinking: str
    content: str
    calls: tuple[tuple[Any, ...], ...]


def cases(style: str | None = None) -> tuple[Case, ...]:
    """Those of one style; without a name, all of them."""
    return tuple(case for case in _cases() if style in (None, case.style.name))


@cache
def _cases() -> tuple[Case, ...]:
    tools = json.loads((FOLDER / "tools.json").read_text(encoding="utf-8"))
    found: list[Case] = []
    for path in sorted(FOLDER.glob("answers*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            row = json.loads(line)
            style = style_named(row["style"])
            assert style is not None, row["style"]
            given = tuple(tools[one] if isinstance(one, str) else one for one in row.get("tools", ()))
            opening = Opening(row.get("place", "start"), row.get("written", ""))
            calls = tuple(tuple(call) for call in row.get("calls", ()))
            found.append(
                Case(
                    f"{row['style']}-{path.stem.removeprefix('answers_')}-{number}",
                    style,
                    row["text"],
                    given,
                    opening,
                    row.get("thinking", ""),
                    row.get("content", ""),
                    calls,
                )
            )
    return tuple(found)


def split(case: Case, pieces: Iterable[Piece]) -> list[Event]:
    splitter = splitter_for(case.style, case.opening, list(case.tools))
    events = [event for piece in pieces for event in splitter.push(piece)]
    return events + splitter.finish()


def plain(parts: Sequence[str]) -> list[Piece]:
    """Parts of text, each a token."""
    return [Piece(part, (number,)) for number, part in enumerate(parts)]


def folded(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """Events with neighbours of one kind joined, and without ids of calls, which are drawn."""
    told: list[tuple[Any, ...]] = []
    for event in events:
        match event:
            case CallStart():
                told.append(("start", event.index, event.name))
            case CallEnd():
                told.append(("end", event.index, event.rest))
            case Text() | Thinking() | CallArguments():
                kind = type(event).__name__
                if told and told[-1][0] == kind:
                    told[-1] = (kind, told[-1][1] + event.text)
                elif event.text:
                    told.append((kind, event.text))
    return told


def collected(events: Iterable[Event]) -> Collected:
    whole = Collected()
    for event in events:
        whole.add(event)
    return whole
