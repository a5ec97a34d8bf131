"""Plain completions in OpenAI's words. Log-probabilities are four lists, by token."""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from modelkit.answers.generation import Finish, Generation
from modelkit.output.events import Event, Text, Thinking
from modelkit.server.ask import Started
from modelkit.server.cost import together
from modelkit.server.faults import Fault
from modelkit.server.frames import MARK, Frame, ascii_text
from modelkit.server.logprobs import Spell, TextToken, Tokens, readable
from modelkit.server.openai.answer_head import head_of, read_so_far, whole_answer
from modelkit.server.openai.completion_request import CompletionRequest
from modelkit.server.openai.errors import error_event
from modelkit.server.openai.usage import chat_usage, timings
from modelkit.server.openai.wire import DONE, new_id
from modelkit.server.streaming import sse
from runtime.records import dataclass


@dataclass(slots=True)
class Lists:
    """Log-probabilities in the older shape."""

    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)

    def add(self, told: TextToken, offset: int, spell: Spell, *, known: bool = True) -> None:
        """offset: characters in front of it. known: does it have a log-probability?"""
        own = told.logprob
        self.tokens.append(readable(told.data))
        self.token_logprobs.append(own.logprob if known else None)
        self.top_logprobs.append({readable(spell(one)): value for one, value in own.top} if known else None)
        self.text_offset.append(offset)

    def extend(self, other: "Lists") -> None:
        self.tokens += other.tokens
        self.token_logprobs += other.token_logprobs
        self.top_logprobs += other.top_logprobs
        self.text_offset += other.text_offset

    def written(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
        }


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt that is given back."""

    text: str = ""
    lists: Lists = field(default_factory=Lists)
    """Empty unless log-probabilities were asked for."""


class Choice:
    """One of the answers while it comes."""

    def __init__(self, spell: Spell, *, logprobs: bool) -> None:
        self.answer: Generation | None = None
        self.chars = 0
        self.texts: list[str] = []
        self.lists = Lists() if logprobs else None
        self._spell, self._tokens = spell, Tokens(spell)

    def echo(self, echo: Echo) -> dict[str, Any]:
        """What is said of the prompt. Comes first."""
        return self._add_text(echo.text, echo.lists)

    def add(self, event: Text | Thinking) -> dict[str, Any] | None:
        """What a piece of the answer adds; None for nothing."""
        if self.lists is None:
            return self._add_text(event.text, None) if event.text else None
        new = self._listed(self._tokens.add(event.text, event.logprobs))
        return self._add_text(event.text, new) if event.text or new.tokens else None

    def end(self) -> dict[str, Any]:
        """What its end lets out: log-probabilities at most."""
        told = self._tokens.finish()
        return self._add_text("", self._listed(told) if told else None)

    @property
    def reason(self) -> str:
        return "length" if self.answer is None or self.answer.reason == "length" else "stop"

    def _listed(self, told: Sequence[TextToken]) -> Lists:
        new = Lists()
        for one in told:
            new.add(one, self.chars + one.start, self._spell)
        return new

    def _add_text(self, text: str, new: Lists | None) -> dict[str, Any]:
        self.texts.append(text)
        self.chars += len(text)
        if self.lists is None or new is None:
            return {"text": text, "logprobs": None}
        self.lists.extend(new)
        return {"text": text, "logprobs": new.written()}


class CompletionStream:
    """A Formatter. echoes: gives the prompts back, by number, once there is a model."""

    def __init__(self, asked: CompletionRequest, echoes: Callable[[int], Echo]) -> None:
        self._asked, self._echoes = asked, echoes
        self._id = new_id("cmpl-")
        self._choices: list[Choice] = []
        self._frames: dict[int, Frame] = {}

    def begin(self, started: Started) -> bytes:
        self._head = head_of(self._id, self._asked.model, started)
        spell, logprobs = started.model.token_bytes, self._asked.style.logprobs
        self._choices = [Choice(spell, logprobs=logprobs) for _ in range(self._asked.rows)]
        if not self._asked.echo:
            return b""
        said = [
            choice.echo(self._echoes(row // self._asked.each)) for row, choice in enumerate(self._choices)
        ]
        return b"".join(self._chunk(row, one) for row, one in enumerate(said))

    def batch(self, row: int, events: Sequence[Event | Finish]) -> bytes:
        return b"".join(self._brief(row, one, ended) for one, ended in self.take(row, events))

    def take(self, row: int, events: Sequence[Event | Finish]) -> list[tuple[dict[str, Any], bool]]:
        """What there is to say of these events, and whether it is the last. Raises Refused where the server
        has ended the answer.
        """
        choice, said = self._choices[row], list[tuple[dict[str, Any], bool]]()
        for event in events:
            if isinstance(event, Finish):
                choice.answer = whole_answer(event)
                said.append((choice.end(), True))
            elif isinstance(event, Text | Thinking) and (one := choice.add(event)) is not None:
                said.append((one, False))
        return said

    def progress(self, started: Started) -> bytes:
        """How much of the prompt was read, before anything is answered."""
        self._head = head_of(self._id, self._asked.model, started)
        return sse({**self._opening([]), "prompt_progress": read_so_far(started)})

    def end(self) -> bytes:
        cost = sse({**self._opening([]), "usage": self._cost()}) if self._asked.style.usage else b""
        return cost + DONE

    def fail(self, fault: Fault) -> bytes:
        return error_event(fault)

    def whole(self) -> dict[str, Any]:
        """The object of an answer that is not streamed."""
        choices = [
            {
                "index": row,
                "text": "".join(one.texts),
                "logprobs": None if one.lists is None else one.lists.written(),
                "finish_reason": one.reason,
            }
            for row, one in enumerate(self._choices)
        ]
        return {**self._opening(choices), "usage": self._cost(), **self._times(self._choices)}

    def _brief(self, row: int, said: dict[str, Any], ended: bool) -> bytes:
        """As `_chunk`. Nearly every chunk is a piece of text in the same frame, which is written once."""
        if ended or said["logprobs"] is not None:
            return self._chunk(row, said, ended)
        if row not in self._frames:
            self._frames[row] = Frame(self._chunk(row, {"text": MARK, "logprobs": None}))
        return self._frames[row].filled(ascii_text(said["text"]))

    def _chunk(self, row: int, said: dict[str, Any], ended: bool = False) -> bytes:
        choice = self._choices[row]
        reason = choice.reason if ended else None
        chunk = self._opening([{"index": row, **said, "finish_reason": reason}])
        if self._asked.style.usage:
            chunk["usage"] = None
        return sse(chunk | self._times([choice]) if ended else chunk)

    def _times(self, choices: Sequence[Choice]) -> dict[str, Any]:
        usages = [choice.answer.usage for choice in choices if choice.answer is not None]
        return {"timings": timings(together(usages))} if self._asked.style.timings and usages else {}

    def _cost(self) -> dict[str, Any]:
        each = self._asked.each
        usages = [[] if one.answer is None else [one.answer.usage] for one in self._choices]
        prompts = [
            [one for row in usages[at : at + each] for one in row] for at in range(0, len(usages), each)
        ]
        return chat_usage(prompts, 0)

    def _opening(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self._head.completion("text_completion", choices)
