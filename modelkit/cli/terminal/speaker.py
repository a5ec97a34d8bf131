"""An answer on the terminal as it comes: text, and what the model thinks before it, in grey."""

import json
import sys
from typing import TYPE_CHECKING

from modelkit.cli.terminal.screen import Waiting, echo
from modelkit.cli.terminal.ui import count, printable
from modelkit.cli.terminal.wrapping import Wrapping
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from modelkit.settings.terminal import knows_escapes, wants_color

if TYPE_CHECKING:
    from modelkit.answers.generation import Finish, Generation
    from modelkit.client.model_like import Answer

_GREY, _PLAIN = "\x1b[90m", "\x1b[39m"


def say(stream: "Answer", *, thinking: bool = True) -> "Generation":
    """Print an answer. On a terminal: in lines of whole words, without control characters, thinking in grey
    unless it is not wanted, calls of tools on lines of their own. Where output is piped: the text alone,
    exactly.

    An interrupt cancels the generation and is raised again; `stream.result` then has what came until then.
    """
    speaker = Speaker(thinking=thinking) if sys.stdout.isatty() else Piped()
    said = False
    try:
        with Waiting("reading the prompt", more=lambda: _read(stream)) as waiting, stream:
            for event in stream.events():
                if speaker.has_to_say(event):
                    waiting.stop()
                    speaker.take(event)
                    said = True
            waiting.stop()
    except Exception:
        if said:
            speaker.break_off()
        raise
    speaker.end()
    return stream.result


class Piped:
    """For programs that read what is printed."""

    def has_to_say(self, event: "Event | Finish") -> bool:
        return isinstance(event, Text) and bool(event.text)

    def take(self, event: "Event | Finish") -> None:
        if isinstance(event, Text):
            echo(event.text, end="")

    def end(self) -> None:
        pass

    def break_off(self) -> None:
        """What follows is on another stream."""


class Speaker:
    """For people."""

    def __init__(self, *, thinking: bool) -> None:
        self._thinking = thinking
        self._wrapping = Wrapping() if knows_escapes() else Wrapping(lambda: 0)
        self._grey = self._thought = False
        self._call: tuple[str, list[str]] | None = None

    def has_to_say(self, event: "Event | Finish") -> bool:
        if isinstance(event, Thinking):
            return self._thinking and bool(event.text)
        return isinstance(event, CallStart | CallArguments | CallEnd) or (
            isinstance(event, Text) and bool(event.text)
        )

    def take(self, event: "Event | Finish") -> None:
        match event:
            case Thinking():
                self._color(grey=True)
                self._thought = True
                echo(end=self._wrapping.take(event.text))
            case Text():
                if self._thought:
                    self._color(grey=False)
                    echo(end=self._wrapping.take("\n\n"))
                    self._thought = False
                echo(end=self._wrapping.take(event.text))
            case CallStart():
                self._call = event.name, []
            case CallArguments() if self._call:
                self._call[1].append(event.text)
            case CallEnd() if self._call:
                name, texts = self._call
                self._color(grey=False)
                echo(end=self._wrapping.take(f"\ncalls {name} {_compact(''.join(texts))}"))
                self._call, self._thought = None, False
            case _:
                pass

    def end(self) -> None:
        self._color(grey=False)

    def break_off(self) -> None:
        """What follows says why, on a line of its own."""
        self.end()
        echo()

    def _color(self, *, grey: bool) -> None:
        if grey != self._grey and wants_color():
            self._grey = grey
            echo(end=_GREY if grey else _PLAIN)


def _compact(arguments: str) -> str:
    """On one line, where it is whole."""
    try:
        return printable(json.dumps(json.loads(arguments or "{}"), ensure_ascii=False))
    except ValueError:
        return printable(arguments)


def _read(stream: "Answer") -> str:
    """How far a long prompt has been read."""
    progress = stream.progress
    if progress is None or progress.total - progress.cached < 2:
        return ""
    return f": {progress.read:,} of {count(progress.total, 'token')}"
