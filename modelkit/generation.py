"""What a model answers: text with its ids and its cost, whole or piece by piece.

The engine gives ids, `Pieces` makes text of them, a splitter tells thinking, text and calls of tools apart,
and a stream hands it out: to a thread that waits, or to an event loop that does not.
"""

import json
import reprlib
import secrets
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, TypeVar

from modelkit.chat.message import Message, ToolCall
from modelkit.errors import ModelkitError, RequestError
from modelkit.faults import worded
from modelkit.modelfile import Resolved
from modelkit.output.collected import Collected
from modelkit.output.events import Event, Text
from modelkit.output.splitter import Plain, Splitter
from modelkit.output.stopping import Stopping
from modelkit.pieces import Piece, Pieces
from modelkit.room import Limit
from modelkit.waking import listening
from runtime.engine.request import Delta, PromptProgress, TokenLogprob, Usage
from runtime.engine.stream import Stream
from runtime.sampling.params import SamplingParams

T = TypeVar("T")
Reason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Generation:
    """An answer. `str(answer)`, and so `print(answer)`, is its text."""

    text: str
    """The answer itself, without thinking and calls."""
    ids: tuple[int, ...]
    """Every generated token but the stop token. Those of thinking, calls, marks and of a stop string are
    among them, though not in `text`.
    """
    usage: Usage
    reason: Reason
    """"stop": the model ended, or a stop string came. "length": a limit was reached. "cancelled": the
    caller left.
    """
    seed: int
    """What makes the same text again."""
    stop: str | None = None
    """The stop string that was found, if one was."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """One for each of the ids, where they were asked for."""
    cut: Limit | None = None
    """Of the reason "length": "num_predict", or "context", where prompt and answer together fill the
    context (with the parameter context_shift it goes on: usage.dropped_tokens says what was forgotten).
    """
    dropped_messages: int = 0
    """Earlier messages of the conversation that were left out of the prompt, since all of them together
    outgrew the context.
    """
    thinking: str | None = None
    """What the model thought before it answered; None for nothing."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that it calls, in its order."""
    parsed: Any = None
    """The value of the answer, where JSON was asked for (`format`) and the answer is whole."""
    notes: tuple[str, ...] = ()
    """Sentences on what of the request could not be enforced, such as a tool's schema."""

    @property
    def message(self) -> Message:
        """This answer as the conversation's next message."""
        return Message("assistant", self.text, self.thinking, self.tool_calls)

    @property
    def complete(self) -> bool:
        """The model itself ended the answer. One that was to follow a form (JSON, a grammar) follows it then
        to its end; any other is a beginning that may not parse.
        """
        return self.reason == "stop" and self.stop is None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        ended = self.reason if self.cut is None else f"{self.reason} by {self.cut}"
        return f"<Generation {reprlib.repr(self.text)}, {len(self.ids)} tokens, {ended}>"


@dataclass(frozen=True, slots=True)
class Finish:
    """The last event of an answer."""

    answer: Generation
    """All of it."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What is known of an answer before it begins."""

    seed: int
    limit: Limit
    """What will cut it, if anything does."""
    stops: tuple[str, ...] = ()
    """Its stop strings."""
    prompt_ids: tuple[int, ...] = ()
    """What it follows."""
    dropped_messages: int = 0
    """As in Generation."""
    json: bool = False
    """It is to be JSON."""
    notes: tuple[str, ...] = ()
    """Sentences on what of the request could not be enforced."""


@dataclass(frozen=True, slots=True)
class _Out:
    """What one piece let out; without a piece, what the end did."""

    piece: Piece | None
    events: Sequence[Event]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Text))


class GenerationStream:
    """Pieces of text as they come, once. One thread reads; any thread may `close`, at any moment, which ends
    the reader's loop. Leaving early (`with`, `close`, letting go of it) cancels the generation.
    begun: what was known before it began.

    with model.generate("Once upon", stream=True) as pieces:
        for piece in pieces:
            print(piece, end="")
    print(pieces.result.usage)

    `events()` tells thinking, text and calls of tools apart; `pieces()` gives what comes as it is, special
    tokens included. Both, and the plain loop, are also there for event loops (`async for`), but for `pieces`.
    """

    def __init__(
        self,
        stream: Stream,
        pieces: Pieces,
        begun: Beginning,
        splitter: Splitter | None = None,
    ) -> None:
        self.begun = begun
        self._stream = stream
        self._pieces = pieces
        self._splitter = splitter or Plain()
        self._stopping = Stopping(begun.stops)
        self._ready: deque[_Out] = deque()
        self._given = Collected()
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._over = self._left = False
        self._fault: ModelkitError | None = None
        # One reader at a time. A signal handler may come back to a stream that its own thread is reading.
        self._reading = threading.RLock()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while (out := self._next()) is not None:
            if out.text:
                return out.text
        raise StopIteration

    def pieces(self) -> Iterator[Piece]:
        """What the model writes as it is, special tokens, marks and log-probabilities included, from where
        reading has got to: this, `events` and the plain loop read the same answer, once. Where a stop string
        ends the answer, it and the rest of its last token are still here.
        """
        while (out := self._next()) is not None:
            if out.piece is not None:
                yield out.piece

    def events(self) -> "Events":
        """Thinking, text and calls as they come, and last of all a Finish unless somebody has left: for
        `for`, and for `async for`.
        """
        return Events(self._next, self._following, self._finish)

    async def __aiter__(self) -> AsyncIterator[str]:
        """As the plain loop, for event loops: what it waits for is one call of the engine per step, and the
        loop's thread never stands still.
        """
        async for outs in self._following():
            for out in outs:
                if out.text:
                    yield out.text

    async def _following(self) -> AsyncIterator[list[_Out]]:
        """What each step of the engine brought."""
        try:
            with listening(self._stream) as news:
                while True:
                    news.clear()
                    if taken := self._take_ready():
                        yield taken
                    if self._stream.ended:
                        return
                    await news.wait()
        finally:
            if not self._stream.ended:
                self.cancel()

    def take(self) -> list[Piece]:
        """What is there, without waiting; [] where there is none, or no more. Not beside a thread that reads.
        Raises what the generation failed with.
        """
        return [out.piece for out in self._take_ready() if out.piece is not None]

    def _take_ready(self) -> list[_Out]:
        with self._reading:
            for delta in self._read(self._stream.take):
                if not self._over and self._take(delta):
                    self._stream.cancel()
            if self._stream.ended and not self._over:
                self._end()
            taken = [] if self._left else [*self._ready]
            self._ready.clear()
            for out in taken:
                self._hand_out(out)
            return taken

    def __enter__(self) -> "GenerationStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.cancel()  # an error or Ctrl-C goes on at once, without waiting for the engine's step

    def __del__(self) -> None:
        # On whatever thread the garbage collector runs, the engine's too: nothing here may wait.
        if "_stream" in self.__dict__:
            self._stream.cancel()

    def __repr__(self) -> str:
        over = self._over or self._stream.cancelled
        return f"<GenerationStream {'ended' if over else 'open'}, {len(self._ids)} tokens>"

    @property
    def progress(self) -> PromptProgress | None:
        """How far the prompt has been read; None while it waits for others. From any thread, at any time."""
        return self._stream.progress

    def cancel(self) -> None:
        """Want no more, and return at once. From any thread, at any moment."""
        self._left = True
        self._stream.cancel()

    def close(self) -> None:
        """Cancel if still running, and wait until the engine has let go of it. From any thread, at any
        moment; a second time does nothing.
        """
        self._left = True
        self._stream.close()

    @property
    def result(self) -> Generation:
        """The answer as far as it was read, once the iteration has ended or somebody has closed the stream.

        Raises RequestError before that, and what the iteration raised where it failed.
        """
        if not self._over and not self._stream.cancelled and not self._stream.ended:
            raise RequestError(
                "the answer has not ended, so it has no result yet",
                hint="Read the stream to its end, or close() it first.",
            )
        with self._reading:
            if self._fault is not None:
                raise self._fault
            finish, found = self._stream.close(), self._stopping.matched
            reason = "stop" if found is not None else finish.reason
            given = self._given
            return Generation(
                text=given.text,
                ids=tuple(self._ids),
                usage=replace(finish.usage, generated_tokens=len(self._ids)),
                reason=reason,
                seed=self.begun.seed,
                stop=found,
                logprobs=tuple(self._logprobs),
                cut=self.begun.limit if reason == "length" else None,
                dropped_messages=self.begun.dropped_messages,
                thinking=given.thinking,
                tool_calls=given.tool_calls,
                parsed=_read_json(given.text) if self.begun.json and reason == "stop" and not found else None,
                notes=self.begun.notes,
            )

    def whole(self) -> Generation:
        """Wait for the end."""
        with self:
            for _ in self:
                pass
        return self.result

    def _next(self) -> _Out | None:
        """Wait for what comes next; None at the end."""
        with self._reading:
            try:
                while not self._ready and not self._over:
                    self._advance()
                if self._left or not self._ready:
                    return None
                out = self._ready.popleft()
                self._hand_out(out)
            except BaseException:
                self._stream.cancel()  # Ctrl-C may strike between two steps: going on would leave a gap
                raise
            return out

    def _finish(self) -> Finish | None:
        """None where somebody has left before the end was read."""
        return None if self._left else Finish(self.result)

    def _hand_out(self, out: _Out) -> None:
        for event in out.events:
            self._given.add(event)

    def _advance(self) -> None:
        """Wait for the next delta."""
        delta = self._read(self._stream.read)
        if delta is None:
            self._end()
        elif self._take(delta):
            self._stream.close()

    def _read(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except Exception as error:
            self._over, self._fault = True, worded(error)
            raise self._fault from error

    def _take(self, delta: Delta) -> bool:
        """Its pieces are ready; True where a stop string ends the answer there."""
        for place, token in enumerate(delta.ids):
            self._ids.append(token)
            logprob = delta.logprobs[place] if delta.logprobs else None
            if logprob is not None:
                self._logprobs.append(logprob)
            piece = self._pieces.push(token, logprob)
            self._let_out(piece, self._splitter.push(piece))
            if self._stopping.matched is not None:
                self._over = True
                break
        return self._over

    def _end(self) -> None:
        """The engine gives no more; what was held back is ready, unless somebody has left."""
        self._over = True
        if not self._stream.cancelled:
            for piece in self._pieces.finish():
                self._let_out(piece, self._splitter.push(piece))
            self._let_out(None, self._splitter.finish())
            self._ready.append(_Out(None, self._stopping.finish()))

    def _let_out(self, piece: Piece | None, events: Sequence[Event]) -> None:
        passed = [one for event in events for one in self._stopping.push(event)]
        self._ready.append(_Out(piece, passed))


class Events:
    """The events of a stream. `batches` gives those of each of the engine's steps together: whoever writes
    them to a socket writes once per step.
    """

    def __init__(
        self,
        wait: Callable[[], _Out | None],
        follow: Callable[[], AsyncIterator[list[_Out]]],
        finish: Callable[[], Finish | None],
    ) -> None:
        self._wait, self._follow, self._finish = wait, follow, finish

    def __iter__(self) -> Iterator[Event | Finish]:
        while (out := self._wait()) is not None:
            yield from out.events
        if finish := self._finish():
            yield finish

    async def __aiter__(self) -> AsyncIterator[Event | Finish]:
        async for events in self.batches():
            for event in events:
                yield event

    async def batches(self) -> AsyncGenerator[Sequence[Event | Finish]]:
        """Never an empty one."""
        async for outs in self._follow():
            if events := [event for out in outs for event in out.events]:
                yield events
        if finish := self._finish():
            yield [finish]


def _read_json(text: str) -> Any:
    """None where it is none: an answer of calls alone has no text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def sampling_of(
    wanted: Resolved, suppressed: tuple[int, ...] = (), logit_bias: Mapping[int, float] | None = None
) -> SamplingParams:
    """The sampling that these parameters ask for; without a seed, one is drawn here. suppressed: ids that the
    model's authors never want drawn.
    """
    return SamplingParams(
        temperature=wanted.temperature,
        top_k=wanted.top_k,
        top_p=wanted.top_p,
        min_p=wanted.min_p,
        typical_p=wanted.typical_p,
        repeat_penalty=wanted.repeat_penalty,
        repeat_last_n=wanted.repeat_last_n,
        presence_penalty=wanted.presence_penalty,
        frequency_penalty=wanted.frequency_penalty,
        seed=secrets.randbits(63) if wanted.seed < 0 else wanted.seed,
        logit_bias=logit_bias or {},
        suppressed=suppressed,
        draft_acceptance="rejection" if wanted.draft_acceptance == "rejection" else "coupled",
    )
