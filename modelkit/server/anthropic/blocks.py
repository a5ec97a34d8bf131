"""Events to content blocks: each begins, grows and ends before the next one begins.

A block's index counts from 0. What is thought is a block with a signature at its end; one that is omitted
has the signature alone. Text blocks are never empty. Arguments that broke end as an object: see `broken`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, Protocol

from modelkit.chat.message import arguments_of
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from modelkit.server.anthropic.invalid_arguments import ended
from modelkit.server.anthropic.messages import ID_PREFIX
from modelkit.server.anthropic.signing import Sign
from runtime.records import dataclass

_Kind = Literal["thinking", "text", "tool_use"]


@dataclass(frozen=True, slots=True)
class Begin:
    """A block begins, as yet empty."""

    index: int
    block: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Grow:
    """A block gets something more."""

    index: int
    delta: dict[str, str]
    """Its type, and a text under one more name."""


@dataclass(frozen=True, slots=True)
class End:
    """A block is whole."""

    index: int


Step = Begin | Grow | End


class Steps(Protocol):
    """Blocks of one answer."""

    def push(self, event: Event) -> Iterable[Step]: ...
    def finish(self) -> Iterable[Step]: ...


class Blocks:
    """Those of one answer. omitted: what is thought is not shown."""

    def __init__(self, sign: Sign, *, omitted: bool = False) -> None:
        self._sign, self._omitted = sign, omitted
        self._open: _Kind | None = None
        self._index = -1
        self._thought: list[str] = []
        self._arguments: list[str] = []

    def push(self, event: Event) -> Iterator[Step]:
        match event:
            case Thinking() if event.text:
                yield from self._thinking(event.text)
            case Text() if event.text:
                if self._open != "text":
                    yield from self._begin("text", {"text": ""})
                yield Grow(self._index, {"type": "text_delta", "text": event.text})
            case CallStart():
                self._arguments = []
                yield from self._begin(
                    "tool_use", {"id": ID_PREFIX + event.id, "name": event.name, "input": {}}
                )
            case CallArguments() if event.text:
                self._arguments.append(event.text)
                yield self._grown(event.text)
            case CallEnd():
                if missing := self._missing(event.rest):
                    yield self._grown(missing)
                yield from self.finish()
            case _:
                pass

    def _grown(self, arguments: str) -> Grow:
        return Grow(self._index, {"type": "input_json_delta", "partial_json": arguments})

    def _missing(self, rest: str) -> str:
        """What makes an object of arguments that broke; rest: from there on."""
        written = "".join(self._arguments) if rest else ""
        return ended(written, rest) if rest and arguments_of(written) is None else ""

    def finish(self) -> Iterator[Step]:
        """The block that is open ends."""
        if self._open == "thinking":
            signature = self._sign("".join(self._thought))
            yield Grow(self._index, {"type": "signature_delta", "signature": signature})
        if self._open is not None:
            yield End(self._index)
        self._open = None

    def _thinking(self, text: str) -> Iterator[Step]:
        if self._open != "thinking":
            yield from self._begin("thinking", {"thinking": "", "signature": ""})
            self._thought = []
        self._thought.append(text)
        if not self._omitted:
            yield Grow(self._index, {"type": "thinking_delta", "thinking": text})

    def _begin(self, kind: _Kind, empty: dict[str, Any]) -> Iterator[Step]:
        yield from self.finish()
        self._open = kind
        self._index += 1
        yield Begin(self._index, {"type": kind, **empty})
