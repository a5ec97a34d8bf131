"""Events to the lines of an answer, and to the one object of an answer that is not streamed.

Every line of a chat has a message with a role: clients' types want both. A call of a tool comes whole, as
arguments are an object here; one that was cut off, or that is not JSON, is not a call: a client would run it.
What such a one said is told as text, unless the answer was cut.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from time import time
from typing import Any, Literal

from modelkit.answers.generation import Finish, Generation
from modelkit.chat.message import arguments_of
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from modelkit.server.ask import Started
from modelkit.server.faults import Fault, Refused
from modelkit.server.frames import MARK, Frame, utf8_text
from modelkit.server.logprobs import Spell, TextToken, Tokens, token
from modelkit.server.ollama.wire import filled, line, moment, nanoseconds
from modelkit.server.streaming import NDJSON, Wire
from modelkit.server.trace import Trace
from runtime.records import dataclass

Shape = Literal["chat", "generate"]
BROKEN_OFF = Fault("draining", "the answer was broken off by the server")


@dataclass(slots=True)
class _Content:
    """What one line, or the whole answer, says."""

    thinking: str = ""
    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    logprobs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def nothing(self) -> bool:
        return not (self.thinking or self.text or self.calls or self.logprobs)

    def add(self, other: "_Content") -> None:
        self.thinking += other.thinking
        self.text += other.text
        self.calls += other.calls
        self.logprobs += other.logprobs


class Reader:
    """Events of one answer, as far as they came. spell: gives a token's bytes; None where no log-probability
    is to be told.
    """

    def __init__(self, spell: Spell | None = None) -> None:
        self._spell = spell
        self._tokens = None if spell is None else Tokens(spell)
        self._start: CallStart | None = None
        self._written = ""
        self._broken: list[str] = []
        self._calls = 0

    def read(self, event: Event | Finish) -> _Content:
        """What it says."""
        match event:
            case Thinking():
                return _Content(thinking=event.text)
            case Text():
                return _Content(text=event.text, logprobs=self._logprobs_of(event))
            case CallStart():
                self._start, self._written = event, ""
            case CallArguments():
                self._written += event.text
            case CallEnd():
                return self._call(event.rest)
            case Finish():
                text = "" if event.answer.reason == "length" else "\n".join(self._broken)
                rest = self._tokens.finish() if self._tokens is not None else ()
                return _Content(text=text, logprobs=self._listed(rest))
        return _Content()

    def _call(self, rest: str) -> _Content:
        start, self._start = self._start, None
        if start is None:
            return _Content()
        arguments = arguments_of(self._written)
        if arguments is None:
            self._broken.append(f"{start.name}({self._written}{rest})")
            return _Content()
        function = {"index": self._calls, "name": start.name, "arguments": arguments}
        self._calls += 1
        return _Content(calls=[{"id": start.id, "function": function}])

    def _logprobs_of(self, event: Text) -> list[dict[str, Any]]:
        return [] if self._tokens is None else self._listed(self._tokens.add(event.text, event.logprobs))

    def _listed(self, tokens: Sequence[TextToken]) -> list[dict[str, Any]]:
        return [] if self._spell is None else [token(one, self._spell) for one in tokens]


class Lines:
    """A Writer: one line for what each step of the engine brought, and a last one with what it cost; or one
    object.

    model: its name as the client wrote it. logprobs: are they to be told? context: may the ids of prompt and
    answer be sent back by a next request (`generate`)?
    """

    def __init__(self, shape: Shape, model: str, *, logprobs: bool = False, context: bool = False) -> None:
        self._shape: Shape = shape
        self._model, self._logprobs, self._context = model, logprobs, context
        self._reader = Reader()
        self._started: Started | None = None
        self._said = _Content()
        self._answer: Generation | None = None
        self._frame: Frame | None = None

    def begin(self, started: Started) -> bytes:
        self._started = started
        self._reader = Reader(started.model.token_bytes if self._logprobs else None)
        return b""

    def batch(self, row: int, events: Sequence[Event | Finish]) -> bytes:
        written, said = b"", _Content()
        for event in events:
            more = self._reader.read(event)
            # One line says what was thought, then text, then calls: another order begins a new line.
            if (more.thinking and (said.text or said.calls)) or (more.text and said.calls):
                written, said = written + self._line(said), _Content()
            said.add(more)
            if isinstance(event, Finish):
                return written + self._line(said) + self._last(event.answer)
        return written + self._line(said)

    def end(self) -> bytes:
        return b""

    def fail(self, fault: Fault) -> bytes:
        return line({"error": fault.message})

    def take(self, row: int, events: Sequence[Event | Finish]) -> None:
        for event in events:
            self._said.add(self._reader.read(event))
            if isinstance(event, Finish):
                self._answer = event.answer

    def whole(self) -> dict[str, Any]:
        if self._answer is None or self._answer.reason == "cancelled":
            raise Refused(BROKEN_OFF)
        return self._complete(self._said, self._answer)

    def _line(self, said: _Content) -> bytes:
        if said.nothing:
            return b""
        if said.thinking or said.calls or said.logprobs:
            return line(_part(self._shape, self._model, said))
        if self._frame is None:  # nearly every line is a piece of text, so its frame is written once
            self._frame = Frame(line(_part(self._shape, self._model, _Content(text=MARK), MARK)))
        return self._frame.filled(utf8_text(moment(time())), utf8_text(said.text))

    def _last(self, answer: Generation) -> bytes:
        if answer.reason == "cancelled":
            return self.fail(BROKEN_OFF)
        return line(self._complete(_Content(), answer))

    def _complete(self, said: _Content, answer: Generation) -> dict[str, Any]:
        started = self._started
        prompt = started.streams[0].begun.prompt_ids if started and self._context else ()
        trace = None if started is None else started.trace
        return _whole(self._shape, self._model, said, answer, trace, [*prompt, *answer.ids] if prompt else ())


def wire(shape: Shape, model: str) -> Wire:
    """A line without content is the one sign of life that clients pass over: blank lines break them."""
    return replace(NDJSON, heartbeat=line(_part(shape, model, _Content())))


def empty(shape: Shape, model: str, reason: Literal["load", "unload"]) -> dict[str, Any]:
    """The answer to a request that only loads or unloads."""
    return {**_part(shape, model, _Content()), "done": True, "done_reason": reason}


def _part(shape: Shape, model: str, said: _Content, created: str = "") -> dict[str, Any]:
    """created: a time; "" for this moment."""
    opening = {"model": model, "created_at": created or moment(time())}
    logprobs = filled({"logprobs": said.logprobs})
    if shape == "generate":
        thinking = filled({"thinking": said.thinking})
        calls = filled({"tool_calls": said.calls})
        return {**opening, "response": said.text, **thinking, "done": False, **calls, **logprobs}
    more = filled({"thinking": said.thinking, "tool_calls": said.calls})
    message = {"role": "assistant", "content": said.text, **more}
    return {**opening, "message": message, "done": False, **logprobs}


def _whole(
    shape: Shape,
    model: str,
    said: _Content,
    answer: Generation,
    trace: Trace | None,
    context: Sequence[int],
) -> dict[str, Any]:
    """With `done`, and what it cost, in Go's order of the keys."""
    part, usage = _part(shape, model, said), answer.usage
    kept = {key: part.pop(key) for key in ("tool_calls", "logprobs") if key in part}
    part |= {"done": True, "done_reason": "length" if answer.reason == "length" else "stop"}
    metrics = filled(
        {
            "total_duration": nanoseconds(trace.total_s) if trace else 0,
            "load_duration": nanoseconds(trace.load_s) if trace else 0,
            "prompt_eval_count": usage.prompt_tokens,
            "prompt_eval_duration": nanoseconds(usage.prefill_s),
            "eval_count": usage.generated_tokens,
            "eval_duration": nanoseconds(usage.decode_s),
        }
    )
    if shape == "chat":
        return {**part, **kept, **metrics}
    return {**part, **filled({"context": list(context)}), **metrics, **kept}
