"""An answer that a server gives, line by line: events, pieces of text, and at its end the whole answer.

Relies on the lines that `modelkit.server.own.lines` writes. One thread reads; leaving early cancels: the
connection is closed, and the server ends the answer within one step of its engine.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from modelkit.answers.generation import Finish, Generation
from modelkit.answers.room import Limit
from modelkit.client.connection import error_of
from modelkit.client.fields import Fields
from modelkit.errors import ModelkitError, RequestError
from modelkit.output.collected import Collected
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from runtime.engine.request import Drafts, PromptProgress, TokenLogprob, Usage
from runtime.quoting import quoted

Lines = AbstractContextManager[Generator[dict[str, Any]]]


class ServedAnswer:
    """lines: asks the server. seed: that of the request. heard: told the last line."""

    def __init__(self, lines: Lines, seed: int, heard: Callable[[Fields], None]) -> None:
        self._lines, self._seed, self._heard = lines, seed, heard
        self._given = Collected()
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._answer: Generation | None = None
        self.progress: PromptProgress | None = None
        """How far the prompt has been read; None where the server has said nothing of it."""
        self._fault: ModelkitError | None = None
        self._left = self._closed = False
        self._source = lines.__enter__()  # so that a refusal is raised by the call that asks
        self._events = self._read()

    def __iter__(self) -> Iterator[str]:
        return (event.text for event in self._events if isinstance(event, Text) and event.text)

    def events(self) -> Iterator[Event | Finish]:
        """Thinking, text and calls as they come, and last of all a Finish."""
        return self._events

    def __enter__(self) -> "ServedAnswer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if "_source" in self.__dict__:
            self.close()

    def cancel(self) -> None:
        """Want no more. From any thread: the one that reads ends with the next line."""
        self._left = True

    def close(self) -> None:
        """Leave the server. On the thread that reads."""
        self._left = True
        if not self._closed:
            self._closed = True
            self._lines.__exit__(None, None, None)

    def whole(self) -> Generation:
        """Wait for the end."""
        with self:
            for _ in self._events:
                pass
        return self.result

    @property
    def result(self) -> Generation:
        """The answer as far as it was read, once it has ended or somebody has left. Raises what it failed
        with, and RequestError before that.
        """
        if self._fault is not None:
            raise self._fault
        if self._answer is not None:
            return self._answer
        if not self._left:
            raise RequestError(
                "the answer has not ended, so it has no result yet",
                hint="Read the stream to its end, or close() it first.",
            )
        return Generation(
            text=self._given.text,
            ids=tuple(self._ids),
            usage=Usage(generated_tokens=len(self._ids)),
            reason="cancelled",
            seed=self._seed,
            thinking=self._given.thinking,
            tool_calls=self._given.tool_calls,
        )

    def _read(self) -> Generator[Event | Finish]:
        try:
            for line in self._source:
                if self._left:
                    return
                event = self._event(Fields(line))
                if event is not None:
                    yield event
                if self._answer is not None:
                    return
            if not self._left:
                raise ModelkitError("the server ended the connection in the middle of the answer")
        except ModelkitError as error:
            self._fault = error
            raise
        finally:
            self.close()

    def _event(self, said: Fields) -> Event | Finish | None:
        """What a line says; None for one that says nothing to readers."""
        if "error" in said.value:
            failed = said.fields("error")
            raise error_of({"error": failed.text("message"), "kind": failed.text("kind")})
        match said.text("type"):
            case "start":
                return None
            case "progress":
                self.progress = PromptProgress(said.whole("total_tokens"), 0, said.whole("read_tokens"))
                return None
            case "finish":
                self._answer = self._whole(said)
                self._heard(said)
                return Finish(self._answer)
            case _:
                event = _piece(said)
                self._given.add(event)
                if isinstance(event, Text | Thinking):
                    self._ids += event.ids
                    self._logprobs += event.logprobs
                return event

    def _whole(self, said: Fields) -> Generation:
        cut: Limit | None = None
        if said.value.get("cut") is not None:
            cut = "context" if said.word("cut", ("num_predict", "context")) == "context" else "num_predict"
        return Generation(
            text=self._given.text,
            ids=tuple(said.ids("ids")),
            usage=_usage(said.fields("stats")),
            reason=said.word("reason", ("stop", "length", "cancelled")),
            seed=said.whole("seed"),
            stop=said.maybe_text("stop"),
            logprobs=tuple(self._logprobs),
            cut=cut,
            dropped_messages=said.whole("dropped_messages"),
            thinking=self._given.thinking,
            tool_calls=self._given.tool_calls,
            parsed=said.value.get("parsed"),
            notes=tuple(said.texts("notes")),
        )


def _piece(said: Fields) -> Event:
    match said.text("type"):
        case "text":
            return Text(said.text("text"), tuple(said.ids("ids")), _logprobs(said))
        case "thinking":
            return Thinking(said.text("text"), tuple(said.ids("ids")), _logprobs(said))
        case "call_start":
            return CallStart(said.whole("index"), said.text("id"), said.text("name"))
        case "call_arguments":
            return CallArguments(said.whole("index"), said.text("text"))
        case "call_end":
            return CallEnd(said.whole("index"), said.maybe_text("rest") or "")
        case other:
            raise ModelkitError(f"the server sends a line of an unknown type {quoted(other)}")


def _logprobs(said: Fields) -> tuple[TokenLogprob, ...]:
    return tuple(
        TokenLogprob(
            token.whole("id"),
            token.number("logprob"),
            tuple((one.whole("id"), one.number("logprob")) for one in token.each("top")),
        )
        for token in said.each("tokens")
    )


def _usage(said: Fields) -> Usage:
    drafts = tuple(
        Drafts(
            one.text("drafter"),
            one.whole("drafted_tokens"),
            one.whole("accepted_tokens"),
            tuple(one.ids("lengths")),
        )
        for one in said.each("drafts")
    )
    return Usage(
        prompt_tokens=said.whole("prompt_tokens"),
        cached_tokens=said.whole("cached_tokens"),
        generated_tokens=said.whole("generated_tokens"),
        drafted_tokens=said.whole("drafted_tokens"),
        accepted_tokens=said.whole("accepted_tokens"),
        wait_s=said.number("wait_s"),
        prefill_s=said.number("prefill_s"),
        decode_s=said.number("decode_s"),
        rounds=said.whole("rounds"),
        dropped_tokens=said.whole("dropped_tokens"),
        drafts=drafts,
    )
