"""Events put together again: text, thinking and calls of an answer as far as they came."""

import json
from contextlib import suppress
from typing import Any

from modelkit.chat.message import ToolCall
from modelkit.errors import RequestError
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking


class Collected:
    """One answer."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[tuple[CallStart, list[str]]] = []

    def add(self, event: Event) -> None:
        match event:
            case Text():
                self._texts.append(event.text)
            case Thinking():
                self._thoughts.append(event.text)
            case CallStart():
                self._calls.append((event, []))
            case CallArguments():
                self._calls[-1][1].append(event.text)
            case CallEnd():
                self._calls[-1][1].append(event.rest)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def thinking(self) -> str | None:
        """None where there was none."""
        return "".join(self._thoughts) or None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(_call(start, "".join(texts)) for start, texts in self._calls)


def _call(start: CallStart, written: str) -> ToolCall:
    if (arguments := _object(written)) is not None:
        # Too deep, or a number too large for a prompt: what a model writes is no reason to lose its answer.
        with suppress(RequestError):
            return ToolCall(start.name, arguments, start.id)
    return ToolCall(start.name, {}, start.id, written)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)  # "" is none: the answer was cut off before the arguments
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
