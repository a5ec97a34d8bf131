"""Chat completions in OpenAI's words: events to the chunks of a stream, or to one object at the end.

Of a stream: one id and one `created` throughout; the first chunk of a choice has the role and nothing else;
a call's id, type and name come once, before its arguments; the last one has an empty delta and says why it
ended. Thinking stands under both names that clients look for.
"""

from collections.abc import Sequence
from typing import Any

from modelkit.answers.generation import Finish, Generation
from modelkit.chat.message import arguments_of
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from modelkit.server.ask import Started
from modelkit.server.cost import together
from modelkit.server.faults import Fault
from modelkit.server.frames import MARK, Frame, ascii_text
from modelkit.server.logprobs import Spell, TextToken, Tokens, token
from modelkit.server.openai.answer_head import head_of, read_so_far, whole_answer
from modelkit.server.openai.chat_request import Style
from modelkit.server.openai.client_tools import ClientTool, Input, client_tool_of
from modelkit.server.openai.errors import error_event
from modelkit.server.openai.usage import chat_usage, timings
from modelkit.server.openai.wire import DONE, new_id
from modelkit.server.streaming import sse

Said = tuple[dict[str, Any], Any, "Choice | None"]
"""A delta, its log-probabilities, and the choice where it has ended with it."""


class Choice:
    """What is known of one of the answers while it comes."""

    def __init__(self, index: int, style: Style, spell: Spell) -> None:
        self.index = index
        self.answer: Generation | None = None
        self.thinking_tokens = 0
        self._style, self._spell, self._tokens = style, spell, Tokens(spell)
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[tuple[CallStart, list[str]]] = []
        self._input = Input()
        self._logprobs: list[dict[str, Any]] = []

    def delta(self, event: Event) -> tuple[dict[str, Any], Any] | None:
        """What the event adds to the message, and its log-probabilities; None where it adds nothing."""
        match event:
            case Text():
                self._texts.append(event.text)
                found = self._logprobs_of(event) if self._style.logprobs else None
                return ({"content": event.text}, found) if event.text or found else None
            case Thinking():
                self._thoughts.append(event.text)
                self.thinking_tokens += len(event.ids)
                thought = {"reasoning_content": event.text, "reasoning": event.text}
                return (thought, None) if event.text else None
            case CallStart():
                self._calls.append((event, []))
                self._input = Input()
                call = {"index": event.index, **self._call(event, "")}
                return {"tool_calls": [call]}, None
            case CallArguments():
                start, texts = self._calls[-1]
                custom = self._client_tool(start).custom
                text = self._input.add(event.text) if custom else event.text
                texts.append(text)
                said = {"custom": {"input": text}} if custom else {"function": {"arguments": text}}
                return ({"tool_calls": [{"index": event.index, **said}]}, None) if text else None
            case CallEnd():
                return self._broken(event)

    def _broken(self, event: CallEnd) -> tuple[dict[str, Any], Any] | None:
        """What the model wrote where its arguments were not JSON any more: some clients take none at all for
        a call without arguments, and run it.
        """
        start, texts = self._calls[-1]
        if not event.rest or self._client_tool(start).custom or arguments_of("".join(texts)) is not None:
            return None
        texts.append(event.rest)
        return {"tool_calls": [{"index": event.index, "function": {"arguments": event.rest}}]}, None

    def whole(self) -> dict[str, Any]:
        """The choice, once it has ended."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts), "refusal": None}
        if thinking := "".join(self._thoughts):
            message |= {"reasoning_content": thinking, "reasoning": thinking}
        if self._calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = [self._call(start, "".join(texts)) for start, texts in self._calls]
        return {
            "index": self.index,
            "message": message,
            "logprobs": {"content": self._logprobs, "refusal": None} if self._style.logprobs else None,
            "finish_reason": self.reason,
        }

    @property
    def reason(self) -> str:
        answer = self.answer
        if answer is None or answer.reason == "length":
            return "length"
        return "tool_calls" if self._calls else "stop"

    def _client_tool(self, start: CallStart) -> ClientTool:
        return client_tool_of(self._style.client_tools, start.name)

    def _call(self, start: CallStart, written: str) -> dict[str, Any]:
        client_tool = self._client_tool(start)
        if client_tool.custom:
            return {"id": start.id, "type": "custom", "custom": {"name": client_tool.name, "input": written}}
        return {"id": start.id, "type": "function", "function": {"name": start.name, "arguments": written}}

    def rest(self) -> dict[str, Any] | None:
        """Log-probabilities that its end lets out."""
        return self._listed(self._tokens.finish())

    def _logprobs_of(self, event: Text) -> dict[str, Any] | None:
        return self._listed(self._tokens.add(event.text, event.logprobs))

    def _listed(self, tokens: Sequence[TextToken]) -> dict[str, Any] | None:
        told = [token(one, self._spell) for one in tokens]
        self._logprobs += told
        return {"content": told, "refusal": None} if told else None


class ChatStream:
    """A Formatter: the choices of one request, interleaved. `take` and `whole` are for an answer in one."""

    def __init__(self, model: str, style: Style, rows: int) -> None:
        self._model, self._style, self._rows = model, style, rows
        self._id = new_id("chatcmpl-")
        self._choices: list[Choice] = []
        self._frames: dict[tuple[int | str, ...], Frame] = {}

    def begin(self, started: Started) -> bytes:
        self._head = head_of(self._id, self._model, started)
        spell = started.model.token_bytes
        self._choices = [Choice(index, self._style, spell) for index in range(self._rows)]
        role = {"role": "assistant", "content": None}
        return b"".join(self._chunk(choice.index, role) for choice in self._choices)

    def batch(self, row: int, events: Sequence[Event | Finish]) -> bytes:
        return b"".join(self._brief(row, *said) for said in self.take(row, events))

    def take(self, row: int, events: Sequence[Event | Finish]) -> list[Said]:
        """What there is to say of these events. Raises Refused where the server has ended the answer."""
        choice, said = self._choices[row], list[Said]()
        for event in events:
            if isinstance(event, Finish):
                choice.answer = whole_answer(event)
                said.append(({}, choice.rest(), choice))
            elif (delta := choice.delta(event)) is not None:
                said.append((*delta, None))
        return said

    def progress(self, started: Started) -> bytes:
        """How much of the prompt was read, before anything is answered."""
        self._head = head_of(self._id, self._model, started)
        return sse({**self._opening([]), "prompt_progress": read_so_far(started)})

    def end(self) -> bytes:
        cost = sse({**self._opening([]), "usage": self._cost()}) if self._style.usage else b""
        return cost + DONE

    def fail(self, fault: Fault) -> bytes:
        return error_event(fault)

    def whole(self) -> dict[str, Any]:
        """The object of an answer that is not streamed; every choice has ended."""
        choices = [choice.whole() for choice in self._choices]
        written = {**self._opening(choices, "chat.completion"), "usage": self._cost()}
        return written | self._times(self._choices)

    def _brief(self, row: int, delta: dict[str, Any], logprobs: Any, ended: Choice | None) -> bytes:
        """As `_chunk`. Nearly every chunk is a piece of text in the same frame, which is written once."""
        if logprobs is not None or ended is not None or "tool_calls" in delta:
            return self._chunk(row, delta, logprobs, ended)
        key = row, *delta
        if key not in self._frames:
            self._frames[key] = Frame(self._chunk(row, dict.fromkeys(delta, MARK)))
        return self._frames[key].filled(*map(ascii_text, delta.values()))

    def _chunk(
        self, index: int, delta: dict[str, Any], logprobs: Any = None, ended: Choice | None = None
    ) -> bytes:
        reason = None if ended is None else ended.reason
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        written = self._opening([choice])
        if self._style.usage:
            written["usage"] = None
        return sse(written if ended is None else written | self._times([ended]))

    def _times(self, choices: Sequence[Choice]) -> dict[str, Any]:
        usages = [choice.answer.usage for choice in choices if choice.answer is not None]
        return {"timings": timings(together(usages))} if self._style.timings and usages else {}

    def _cost(self) -> dict[str, Any]:
        usages = [choice.answer.usage for choice in self._choices if choice.answer is not None]
        return chat_usage([usages], sum(choice.thinking_tokens for choice in self._choices))

    def _opening(self, choices: list[dict[str, Any]], kind: str = "chat.completion.chunk") -> dict[str, Any]:
        return self._head.completion(kind, choices)
