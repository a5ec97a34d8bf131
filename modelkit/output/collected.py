"""Events put together again: text, thinking and calls of an answer as far as they came."""

from modelkit.chat.message import ToolCall, call_as_written
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
        return tuple(call_as_written(start.name, "".join(texts), start.id) for start, texts in self._calls)
