"""One request on a model: from the wait for it to the last byte.

`ActiveRequest` holds the lease, starts the rows in a worker thread, and gives their events step by step: to
who waits for them, or (`follow`) to a function that is called where the loop is told of them.

Invariants:
- Whoever leaves cancels: one watcher per request waits for the client to go, and cancels the rows, or the
  wait for the model. `GenerationStream.cancel` only sets a flag; the engine ends the rows within a step.
- The lease is given back when the rows have ended and all of them was taken, however that came. The turn is
  given back once they have ended: who reads slowly keeps nobody else waiting.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from functools import partial
from time import monotonic, time

from starlette.requests import Request
from starlette.types import Receive

from modelkit.answers.generation import Finish, Generation
from modelkit.answers.streams import GenerationStream
from modelkit.answers.waker import following
from modelkit.chat.message import ToolCall
from modelkit.interest import Interest
from modelkit.model import Model
from modelkit.server.adapter_choice import choosing, split_adapters
from modelkit.server.ask import Ask, Started
from modelkit.server.calling import check_open, gone, note_failure, note_lease
from modelkit.server.faults import Fault, Refused, client_gone, refused
from modelkit.server.metrics import Histogram
from modelkit.server.models.pool import Lease
from modelkit.server.models.turns import PRIORITIES, Priority
from modelkit.server.rows import Batch, Rows
from modelkit.server.serving import serving_of, threads_for, trace_of
from modelkit.server.trace import Outcome

Take = Callable[[list[Batch]], bool]
"""Gets what a step brought, which is never nothing; False: it can take no more for now."""
_PRIORITY = "x-modelkit-priority"


class ActiveRequest:
    """A request from its arrival to its end. Iterating gives what each of the engine's steps brought its
    rows, once; raises what went wrong, and Refused where it was stopped.
    """

    def __init__(self, request: Request, ask: Ask) -> None:
        self.serving, self.trace = serving_of(request), trace_of(request)
        self.fault: Fault | None = None
        self._ask = ask
        self._threads = threads_for(request, patient=ask.scores)
        self._priority: Priority = ask.priority or priority_in(request)
        self._started: Started | None = None
        self._gaps: Histogram | None = None
        self._held = AsyncExitStack()  # the lease, and the ear for the rows
        self._news = asyncio.Event()
        self._take: Take | None = None
        self._turn: asyncio.Future[bool] | None = None
        # The wait for model and first step is a task of its own, so that it can be broken off.
        self._first: asyncio.Task[list[Batch] | None] = asyncio.ensure_future(self._begin())
        self._watcher = asyncio.ensure_future(self._watch(request.receive))
        self.serving.state.underway.add(self)

    async def wait_first(self, patience_s: float | None) -> None:
        """Until the first step is there, or for so long. Raises what went wrong until then."""
        await asyncio.wait({self._first}, timeout=patience_s)
        if self._first.done():
            self._first.result()

    async def __aiter__(self) -> AsyncGenerator[list[Batch]]:
        step = await self._first
        while step is not None:
            yield step
            step = await self._next()

    async def follow(self, take: Take, ready: Callable[[], Awaitable[None]]) -> None:
        """As iterating, with `take` called for each step, on the loop's thread and beside no other. Where it
        gives False, `ready` is awaited before it gets more. Raises what it raises.

        A step costs no turn of a task: of many streams those turns would take as long as all that is said.
        """
        step = await self._first
        goes_on = step is None or take(step)
        if step is None:
            return
        while True:
            if not goes_on:
                self._end_turn()
                await ready()
            if self._rows.ended:
                break
            goes_on = await self._taken_by(take)
        await self._end()

    async def _taken_by(self, take: Take) -> bool:
        """Have `take` called until it wants no more for now, which gives False, or all has ended."""
        self._take, self._turn = take, asyncio.get_running_loop().create_future()
        try:
            self._on_news()  # what has come meanwhile
            return await self._turn
        finally:
            self._take = self._turn = None

    def _on_news(self) -> None:
        """The rows may have something new."""
        take, turn = self._take, self._turn
        if take is None or turn is None:
            self._news.set()
            self._end_turn()
        elif not turn.done():
            try:
                step = self._rows.take()
                if step:
                    self._note(step)
                goes_on = not step or take(step)
            except Exception as error:  # noqa: BLE001 -- raised to who follows
                turn.set_exception(error)
            else:
                if self._rows.ended or not goes_on:
                    turn.set_result(goes_on)

    def _end_turn(self) -> None:
        """Where the engine is done with all rows, others may have their places."""
        if all(row.source.complete for row in self.started.streams):
            self._lease.end_turn()

    @property
    def started(self) -> Started:
        assert self._started is not None, "no row was started"
        return self._started

    @property
    def has_started(self) -> bool:
        """Are there rows? Before that it waits for the model."""
        return self._started is not None

    def stop(self, fault: Fault) -> None:
        """Want no more, for this reason. Returns at once."""
        if self.fault is not None:
            return
        self.fault = fault
        if self._started is not None:
            for row in self._started.streams:
                row.cancel()
        else:
            self._first.cancel()

    def failed(self, error: Exception) -> Fault:
        """What to tell of an error in the middle of the stream; noted for the log."""
        return note_failure(self.serving, self.trace, error)

    async def close(self) -> None:
        """Let go of everything. Safe to call twice."""
        self.serving.state.underway.discard(self)
        self._watcher.cancel()
        if not self._first.done():
            self._first.cancel()
            await asyncio.wait({self._first})
        await self._let_go()

    async def _watch(self, receive: Receive) -> None:
        await gone(receive)
        self.stop(client_gone().fault)

    async def _begin(self) -> list[Batch] | None:
        """The first step. What was held until then is let go where it fails."""
        check_open(self.serving)
        try:
            asked = self._ask
            name, adapters = split_adapters(asked.model)
            lent = self.serving.pool.acquire(name, asked.keep_alive, priority=self._priority)
            lease = self._lease = await self._held.enter_async_context(lent)
            note_lease(self.trace, asked.model, lease)
            self._started = await self._start(lease, choosing(lease.model, adapters))
            self._rows = Rows(self._started.streams)
            self._held.enter_context(following(self._on_news, *(one.source for one in self._started.streams)))
            return await self._next()
        except BaseException as error:
            await self._let_go()
            if isinstance(error, asyncio.CancelledError) and self.fault is not None:
                raise Refused(self.fault) from None
            raise

    async def _next(self) -> list[Batch] | None:
        """The next step, never without anything; None at the end, when all is let go."""
        while True:
            self._news.clear()
            if step := self._rows.take():
                self._note(step)
                return step
            if self._rows.ended:
                return await self._end()
            await self._news.wait()

    async def _end(self) -> None:
        """The rows have ended."""
        if self._rows.fault is None:
            self._note_left(self.started.streams)
        await self._let_go()
        if self._rows.fault is not None:
            raise self._rows.fault
        if self.fault is not None:
            raise Refused(self.fault)

    async def _let_go(self) -> None:
        if self._started is not None:
            for one in self._started.streams:
                one.cancel()
        await self._held.aclose()

    async def _start(self, lease: Lease, model: Model) -> Started:
        """All rows, or none. One that starts after somebody has left is cancelled on the spot. model: the
        lease's, as it is to answer.
        """
        loop, streams, interest = asyncio.get_running_loop(), list[GenerationStream](), Interest()
        starting: asyncio.Future[GenerationStream] | None = None
        try:
            for row in range(self._ask.rows):
                start = partial(interest.work, partial(self._ask.start, model, row))
                starting = loop.run_in_executor(self._threads, start)
                streams.append(await asyncio.shield(starting))
        except BaseException:
            interest.end()
            for one in streams:
                one.cancel()
            if starting is not None:
                starting.add_done_callback(_cancel_what_started)
            raise
        self.trace.rows = len(streams)
        return Started(lease.model, tuple(streams), self.trace, time(), lease.digest)

    def _note_left(self, streams: Sequence[GenerationStream]) -> None:
        """What was spent on rows that somebody has left: they gave no Finish, and have ended."""
        if self.fault is not None:
            self.trace.usages = [one.result.usage for one in streams]

    def _note(self, step: Sequence[Batch]) -> None:
        trace, now, streams = self.trace, monotonic(), self.started.streams
        if trace.piece_s is None or self._gaps is None:
            trace.first_token_s = now - trace.began_s
            self._gaps = self.serving.metrics.gaps(trace.model)
        else:
            self._gaps.add(now - trace.piece_s)
        trace.piece_s = now
        for row, events in step:
            last = events[-1]
            if isinstance(last, Finish):
                self._note_end(last.answer, streams[row].begun.tools)

    def _note_end(self, answer: Generation, offered: Collection[str]) -> None:
        self.trace.usages.append(answer.usage)
        self.trace.tool_calls.update(_outcome(one, offered) for one in answer.tool_calls)
        self.trace.finish = "tool_calls" if answer.tool_calls else answer.reason


def _outcome(call: ToolCall, offered: Collection[str]) -> Outcome:
    if call.name not in offered:
        return "unknown_name"
    return "ok" if call.written is None else "broken"


def priority_in(request: Request) -> Priority:
    """What the header says. Raises Refused for a word that is none."""
    word = request.headers.get(_PRIORITY, "default").strip().lower()
    for priority in PRIORITIES:
        if word == priority:
            return priority
    raise refused("invalid_request", f"{_PRIORITY} is none of {', '.join(PRIORITIES)}", _PRIORITY)


def _cancel_what_started(starting: "asyncio.Future[GenerationStream]") -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().cancel()
