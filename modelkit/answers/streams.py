"""Answers as they come.

The engine gives ids, `AnswerParser` makes thinking, text and calls of tools of them, and a stream hands it
out: to a thread that waits, or to an event loop that does not.
"""

import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from types import TracebackType
from typing import Literal, TypeVar

from modelkit import arguments
from modelkit.answers.generation import Beginning, Finish, Generation, answered
from modelkit.bound import Bound
from modelkit.errors import ModelkitError, RequestError
from modelkit.faults import as_modelkit_error
from modelkit.output.answer_parser import AnswerParser, Out
from modelkit.output.collected import Collected
from modelkit.output.events import Event
from modelkit.output.joining import joined
from modelkit.output.pieces import Piece, Pieces
from modelkit.output.splitter import Plain, Splitter
from runtime.engine.request import Delta, PromptProgress
from runtime.engine.stream import Stream

T = TypeVar("T")
Way = Literal["text", "pieces"]


class GenerationStream(Bound):
    """An answer's pieces of text as they come, to be read once. One thread reads; any thread may `close` at
    any moment, which ends the reader's loop. Leaving early (`with`, `close`, dropping the stream) cancels the
    generation. begun: what was known before it began.

    with model.generate("Once upon", stream=True) as pieces:
        for piece in pieces:
            print(piece, end="")
    print(pieces.result.usage)

    `events()` tells thinking, text and tool calls apart; `pieces()` gives everything as the model writes it,
    special tokens included. The plain loop and `events` also work with `async for`.
    """

    def __init__(
        self,
        stream: Stream,
        pieces: Pieces,
        begun: Beginning,
        splitter: Splitter | None = None,
        holder: object = None,
    ) -> None:
        """holder: the model, held for as long as the answer is read: one that nobody holds is closed."""
        self.begun = begun
        self._stream = stream
        self._parser = AnswerParser(pieces, splitter or Plain(), begun.stops)
        self._ready: deque[Out] = deque()
        self._given = Collected()
        self._over = self._left = self._finished = False
        self._fault: ModelkitError | None = None
        self._way: Way | None = None
        self._holder = holder
        # One reader at a time. A signal handler may come back to a stream that its own thread is reading.
        self._reading = threading.RLock()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while (out := self._next("text")) is not None:
            if out.text:
                return out.text
        raise StopIteration

    def pieces(self) -> Iterator[Piece]:
        """Everything as the model writes it, including special tokens, marks and log-probabilities, from
        where reading has got to: this, `events` and the plain loop read the same answer, once. A stop string
        that ends the answer, and the rest of its last token, are included.

        Where stop strings, or marks of thinking and calls, are possible, the loops hold text back that pieces
        give at once. Such an answer must be read in one way to its end; the other raises RequestError.
        """
        while (out := self._next("pieces")) is not None:
            if out.piece is not None:
                yield out.piece

    def events(self) -> "Events":
        """Thinking, text and calls as they come, and at the end a Finish, unless the stream was left early.
        For `for` and `async for`.
        """
        return Events(lambda: self._next("text"), self.batches, self._finish)

    async def __aiter__(self) -> AsyncGenerator[str]:
        """The plain loop for event loops, which never blocks their thread. The engine wakes it once per step
        at most. Leaving this loop early cancels the generation, too.
        """
        # Whoever closes this one has closed what it reads: a loop that is left is left at once.
        async with aclosing(self._following(lambda: self._take_ready("text"))) as taken:
            async for outs in taken:
                for out in outs:
                    if out.text:
                        yield out.text

    def batches(self) -> AsyncGenerator[Sequence[Event | Finish]]:
        """For event loops: the events of each step of the engine together, at least one, and at the end a
        Finish.
        """
        return self._following(self.take_events)

    async def _following(self, take: Callable[[], list[T]]) -> AsyncGenerator[list[T]]:
        """What there is to take after each step of the engine."""
        from modelkit.answers.waker import listening  # with asyncio, whose loop the caller has

        try:
            with listening(self.source) as news:
                while True:
                    news.clear()
                    if taken := take():
                        yield taken
                    if self.ended:
                        return
                    await news.wait()
        finally:
            if not self.ended:
                self.cancel()

    @property
    def source(self) -> Stream:
        """The engine's stream that this one reads, for listening to several at once."""
        return self._stream

    @property
    def ended(self) -> bool:
        """Has everything been read?"""
        return self._stream.ended

    def take_events(self) -> list[Event | Finish]:
        """The events that are there, without waiting, neighbours of one kind as one (`joined`); at the end a
        Finish, unless the stream was left early. Otherwise as `take`.
        """
        events: list[Event | Finish] = [*self._take_joined()]
        if self.ended and not self._finished:
            self._finished = True
            if finish := self._finish():
                events.append(finish)
        return events

    def take(self) -> list[Piece]:
        """The pieces that are there, without waiting; [] if there are none yet, or no more. Not to be called
        while a thread reads. Raises what the generation failed with, and RequestError as `pieces` does.
        """
        return [out.piece for out in self._take_ready("pieces") if out.piece is not None]

    def _take_joined(self) -> list[Event]:
        if self._ready:  # somebody has read piece by piece until now
            return joined(event for out in self._take_ready("text") for event in out.events)
        with self._reading:
            self._read_as("text")
            deltas = self._read(self._stream.take)
            events = self._parser.take_joined(deltas) if deltas and not self._over else []
            if self._parser.stop is not None and not self._over:
                self._over, self._holder = True, None
                self._stream.cancel()
            if self._stream.ended and not self._over:
                self._end()
                events = joined([*events, *(event for out in self._ready for event in out.events)])
                self._ready.clear()
            if self._left:
                return []
            for event in events:
                self._given.add(event)
            return events

    def _take_ready(self, way: Way) -> list[Out]:
        with self._reading:
            self._read_as(way)
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
        return f"<GenerationStream {'ended' if over else 'open'}, {len(self._parser.ids):,} tokens>"

    def note(self, text: str) -> None:
        """Add a note on what of the request was not done; before anything is read."""
        self.begun = replace(self.begun, notes=(*self.begun.notes, arguments.text(text, "text")))

    @property
    def dropped_messages(self) -> int:
        """As in Generation: known before the answer begins."""
        return self.begun.dropped_messages

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The prompt's ids."""
        return self.begun.prompt_ids

    @property
    def progress(self) -> PromptProgress | None:
        """How much of the prompt has been processed; None while the request waits. From any thread, at any
        time.
        """
        return self._stream.progress

    def cancel(self) -> None:
        """Cancel the generation and return at once. From any thread, at any moment."""
        self._left, self._holder = True, None
        self._stream.cancel()

    def close(self) -> None:
        """Cancel the generation if it is still running, and wait until the engine has ended it. From any
        thread, at any moment; a second call does nothing.
        """
        self._left = True
        self._stream.close()
        self._holder = None  # last: who waits for the engine may be all that holds the model

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
            finish, parser = self._stream.close(), self._parser
            told = tuple(parser.ids), tuple(parser.logprobs)
            return answered(self.begun, self._given, finish, parser.stop, *told)

    def whole(self) -> Generation:
        """Wait for the end."""
        with self:
            while self._next() is not None:
                pass
        return self.result

    def _next(self, way: Way | None = None) -> Out | None:
        """Wait for what comes next; None at the end."""
        with self._reading:
            self._read_as(way)
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

    def _read_as(self, way: Way | None) -> None:
        """Raises RequestError where it was read in the other way, and more comes. None: it is not given."""
        if way is None or (self._over and not self._ready):
            return
        if self._way not in (way, None) and self._parser.holds:
            raise RequestError(
                f"the answer was read as {self._way} so far; as {way}, characters would be missing, or twice",
                hint="Go on with pieces() or take()." if way == "text" else "Go on with a loop or events().",
            )
        self._way = way

    def _finish(self) -> Finish | None:
        """None where somebody has left before the end was read."""
        return None if self._left else Finish(self.result)

    def _hand_out(self, out: Out) -> None:
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
            self._over, self._fault, self._holder = True, as_modelkit_error(error), None
            raise self._fault from error

    def _take(self, delta: Delta) -> bool:
        """Its pieces are ready; True where a stop string ends the answer there."""
        self._ready.extend(self._parser.take(delta))
        if self._parser.stop is not None:
            self._over, self._holder = True, None
        return self._over

    def _end(self) -> None:
        """The engine gives no more; what was held back is ready, unless somebody has left."""
        self._over, self._holder = True, None
        if not self._stream.cancelled:
            cut = self._stream.finish is not None and self._stream.finish.reason == "length"
            self._ready.extend(self._parser.finish(cut=cut))


class Events:
    """The events of a stream. `batches` gives those that came together, a step's or some short steps':
    whoever writes them to a socket writes once for them.
    """

    def __init__(
        self,
        wait: Callable[[], Out | None],
        batches: Callable[[], AsyncGenerator[Sequence[Event | Finish]]],
        finish: Callable[[], Finish | None],
    ) -> None:
        self._wait, self.batches, self._finish = wait, batches, finish

    def __iter__(self) -> Iterator[Event | Finish]:
        while (out := self._wait()) is not None:
            yield from out.events
        if finish := self._finish():
            yield finish

    async def __aiter__(self) -> AsyncGenerator[Event | Finish]:
        async with aclosing(self.batches()) as batches:
            async for events in batches:
                for event in events:
                    yield event
