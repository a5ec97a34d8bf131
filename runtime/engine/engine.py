"""The engine: requests in, tokens out, many rows at once, on one MLX thread.

Requests wait here for places, and rows end here; what a step computes is in `steps`.

When layer memory is full, the youngest row steps aside: it gives up its place, waits in front of all others
until some row has ended, and then reads what it has so far, generated tokens included, as one prompt. Only a
row that has all memory for itself fails with CacheFull.

Invariant: methods without an underscore may be called from any thread, all else runs on the engine's own.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from runtime.cache.prefix import Entry
from runtime.cache.shift import Shift
from runtime.cpu.threads import Choice
from runtime.engine.activity import Activity
from runtime.engine.adapters import AdapterSource
from runtime.engine.bell import Bell, Wake
from runtime.engine.options import Options
from runtime.engine.pace import Pace
from runtime.engine.request import Request
from runtime.engine.room import Drafters, furnish, own_prefix_bytes
from runtime.engine.row import Row
from runtime.engine.scheduler import Load, decide
from runtime.engine.stream import Stream
from runtime.engine.thread import MlxThread, ThreadEnded
from runtime.engine.waiting import Waiting
from runtime.errors import CacheFull, RuntimeFault
from runtime.loaded import LoadedModel

if TYPE_CHECKING:
    from runtime.ranks.lead import Leading

T = TypeVar("T")


class Engine:
    """Runs one loaded model. `load` and `drafters` are called on the engine's thread, where all arrays
    live. learned: what `learned()` gave of an earlier engine of this model; speed alone depends on it.
    adapters: those that requests may ask for. crew: where what is loaded is a share of a model, and other
    machines have the others.
    """

    def __init__(
        self,
        load: Callable[[], LoadedModel],
        options: Options,
        drafters: Drafters | None = None,
        learned: object = None,
        adapters: Sequence[AdapterSource] = (),
        crew: "Leading | None" = None,
    ) -> None:
        self._options, self._prefix_bytes = options, options.prefix_bytes
        self._waiting: deque[Row] = deque()
        self._queue = Waiting(options.max_waiting)
        self._bell, self._pace = Bell(), Pace()
        self._blocked = False
        self._closed, self._closing = False, threading.Lock()
        self._thread = MlxThread()
        if crew is not None:
            crew.group.stuck = self._thread.abandon
        try:
            room = self._thread.call(
                lambda: furnish(load(), options, drafters, learned, self._release, self._bell, adapters, crew)
            )
            self.model, self._memory, self._threads = room.model, room.memory, room.threads
            self._prefixes, self._sources, self._desk = room.prefixes, room.sources, room.desk
            self._places, self._steps, self.adapters = room.places, room.steps, room.adapters
            self._lead, self._decoding = room.lead, room.places.decoding
            self._vocab_size = room.model.vocab_size
            self._reads = room.model.described.start_id is not None
            if crew is not None:
                crew.group.stuck = self._abandon
            self._thread.serve(self._work, failed=self._fail, ended=self._end_all)
        except BaseException:
            self._thread.close()
            raise

    def submit(self, request: Request, wake: Wake | None = None) -> Stream:
        """Queue a request. wake: called on the engine's thread, once per step at most and when it ends,
        when there is something new to `take` from the stream; see `bell`.

        Raises BadTokenIds for ids outside the vocabulary, ValueError for an impossible length or an adapter
        that there is not, QueueFull when too many wait, ThreadEnded when the engine runs no more.
        """
        request.check(self._vocab_size, self._options.context_length, reads=self._reads)
        self.adapters.check(request.adapters)
        stream = Stream(self._bell, wake)
        row = Row(request, stream, self.adapters.space(request.adapters))
        self._queue.enter()
        try:
            self._thread.post(lambda: self._waiting.append(row), stream.put)
        except BaseException:
            self._queue.leave()
            raise
        return stream

    def call(self, function: Callable[[LoadedModel], T]) -> T:
        """Run `function` on the engine's thread between two steps and return its result."""

        def run() -> T:
            self._bell.ring()  # it may take longer than a step
            self._threads.before_step(time.monotonic())
            with self._bounded():
                return function(self.model)

        return self._thread.call(run)

    def learned(self) -> dict[str, Any]:
        """What is known of the drafters' costs and worth, for a later engine of this model; plain data."""
        return self._thread.call(lambda: self._desk.learned())

    def threads(self) -> Choice:
        """What products of the last step had."""
        return self._threads.choice

    @property
    def busy_s(self) -> float:
        """How long the present step has been running; 0 while there is none."""
        return self._thread.busy_s

    def list_prefixes(self) -> list[Entry]:
        """What is kept of earlier sequences: nodes of a tree, parents before children."""
        entries = self._thread.call(
            lambda: [*self._prefixes.describe(), *self._sources.describe(), *self._desk.describe()]
        )
        return [replace(entry, space=self.adapters.readable(entry.space)) for entry in entries]

    def clear_prefixes(self) -> None:
        """Forget it, but for what running sequences stand on."""
        self._thread.call(self._clear_prefixes)

    def limit_prefixes(self, limit_bytes: int) -> int:
        """Keep at most so much of earlier sequences from now on, and forget what is beyond it, but for what
        running ones stand on. Returns the bytes that it may take now: the limit, or what is held still where
        that is more. An engine that was started without keeping anything goes on so, and returns 0.
        """
        return self._thread.call(lambda: self._limit_prefixes(limit_bytes))

    def limit_layers(self, limit_bytes: int) -> None:
        """From now on the layers' memory of all sequences, drafters' included, may grow to so much and no
        further. Returns at once; an engine that has ended is not concerned.
        """
        with suppress(ThreadEnded):
            self._thread.post(lambda: self._limit_layers(limit_bytes), lambda _error: None)

    @property
    def elsewhere(self) -> bool:
        """Is this a fork of the process that it runs in? Nothing of it works here, nor has to be closed."""
        return self._thread.elsewhere

    @property
    def alive(self) -> bool:
        """Can it still be asked for anything?"""
        return self._thread.alive

    @property
    def activity(self) -> Activity:
        """Does not wait for the engine's thread. Not once it is closed."""
        reading = self._places.prefilling is not None
        kept = self._prefixes.kept_bytes + self._sources.kept_bytes + self._desk.kept_bytes
        return Activity(
            running=len(self._decoding) + reading,
            waiting=self._queue.count,
            places=self._options.max_rows,
            layer_bytes=self._memory.budget.held_bytes,
            prefix_bytes=kept,
            prefix_limit_bytes=self._prefix_bytes or 0,
            drafters=self._desk.names,
        )

    def close(self) -> None:
        """Cancel everything, stop the thread, and let go of weights, layer memory and pages. Streams end as
        cancelled. Safe to call twice, from several threads too.
        """
        if self.elsewhere:
            return
        self._thread.close()
        with self._closing:
            if not self._closed:
                self._closed = True
                self._prefixes.close()
                self._sources.close()
                self._let_go()

    def _let_go(self) -> None:
        """Whoever still holds the engine keeps no weights alive."""
        del self.model, self._memory, self._desk, self._prefixes, self._sources
        del self._places, self._decoding, self._steps
        self.adapters.let_go()

    def _clear_prefixes(self) -> None:
        self._prefixes.clear()
        self._sources.clear()
        self._desk.forget()

    def _limit_layers(self, limit_bytes: int) -> None:
        self._memory.budget.limit_bytes = limit_bytes
        self._blocked = False  # there may be room now

    def _limit_prefixes(self, limit_bytes: int) -> int:
        if self._prefix_bytes is None:
            return 0
        self._prefix_bytes = limit_bytes
        own = own_prefix_bytes(self._memory, self._options, self._desk, limit_bytes)
        if own is not None:
            self._prefixes.resize(own)
            self._sources.resize(own)
        kept = self._prefixes.kept_bytes + self._sources.kept_bytes + self._desk.kept_bytes
        return max(limit_bytes, kept)

    def _work(self) -> bool:
        """One step; False when there is nothing to do."""
        more = False
        try:
            with self._bounded():
                more = self._next()
        finally:
            self._bell.step_over(more=more)
        return more

    def _bounded(self) -> AbstractContextManager[None]:
        """What waits for other machines inside waits no longer than it may."""
        return nullcontext() if self._lead is None else self._lead.group.bounded()

    def _next(self) -> bool:
        self._drop_cancelled()
        self._make_room()
        work = decide(self._load(), self._options.budget_tokens, self._pace.beside)
        if work.idle:
            self._threads.rest()
            self._places.rest()
            self._desk.idle()
            if self._lead is not None:
                self._lead.rest()
            return False
        if work.admit:
            self._bell.ring()  # what is known of the prompt may have to come from a disk
            self._admit(self._waiting[0])
        else:
            self._step(work.prefill)
        return True

    def _load(self) -> Load:
        reading = self._places.prefilling
        waiting = 0 if self._blocked else len(self._waiting)
        return Load(len(self._decoding), reading.unread if reading else 0, waiting, self._places.free)

    def _admit(self, row: Row) -> None:
        """Open a place for the oldest waiting row."""
        try:
            self.adapters.bring(row.request.adapters)
        except RuntimeFault as error:
            self._waiting.popleft()
            self._leaves_queue(row)
            row.stream.put(error)
            return
        if row.shift is None:
            row.shift = self._shift(row.request)
        if row.request.max_tokens > 0:
            try:
                self._places.open(row)
            except CacheFull as error:
                self._wait_for_room(error)
                return
        self._waiting.popleft()
        self._leaves_queue(row)
        if not row.admitted:
            row.admitted, row.cached = time.monotonic(), row.length
        row.tell_progress()
        if row.request.max_tokens == 0:
            row.end("length")

    def _wait_for_room(self, error: CacheFull) -> None:
        """There is no place for the oldest waiting row."""
        if self._places.make_way():
            return
        self._blocked = bool(self._decoding)
        if not self._blocked:
            row = self._waiting.popleft()
            self._leaves_queue(row)
            row.stream.put(error)

    def _leaves_queue(self, row: Row) -> None:
        """It has a place, or ends without one."""
        if row.queued:
            row.queued = False
            self._queue.leave()

    def _step_aside(self, error: CacheFull) -> None:
        """Memory is full, and what ran into that was not done: the youngest row waits for another to end."""
        self._steps.read_back()
        self._desk.done(None)
        rows = self._places.rows
        if not rows or self._places.make_way():
            return
        # One that is being read was admitted last; it need not have come last, having stepped aside before.
        row = self._places.prefilling or max(rows, key=lambda row: row.submitted)
        if len(rows) == 1:
            row.stream.put(error)
        else:
            self._waiting.appendleft(row)
        self._places.release(row)
        self._blocked = len(rows) > 1

    def _shift(self, request: Request) -> Shift | None:
        if request.keep is None:
            return None
        layout, rotates = self.model.described.layout, self.model.network.shifts
        return Shift.of(request.keep, self._options.context_length, layout, rotates)

    def _make_room(self) -> None:
        """Rows that can read no more as they are being read: those that have filled their context forget some
        of it, in place or by being read anew, others wait in front to be read as long ones.
        """
        if not any(row.full for row in self._places.rows):
            return
        self._steps.read_back()  # which may end some of them
        self._desk.done(None)
        for row in [row for row in self._places.rows if row.full]:
            if row.outgrown and row.shift is not None and row.shift.turns:
                self._places.shift(row, self.model.network.shifts)
                self._steps.decode_plain()
                continue
            self._waiting.appendleft(row)
            self._places.release(row)
            self._blocked = False
            if row.outgrown:
                row.forget()

    def _step(self, prefill: int) -> None:
        began_s, worked_s = time.monotonic(), time.thread_time()
        self._threads.before_step(began_s, beside=self._steps.beside and not prefill)
        reading, writing = self._places.prefilling, len(self._decoding)
        length = reading.length if reading else 0
        try:
            self._steps.run(prefill)
        except CacheFull as error:
            self._step_aside(error)
            return
        if self._steps.beside:
            self._threads.stepped(time.thread_time() - worked_s, time.monotonic() - began_s)
        if reading is None:
            self._pace.wrote(time.monotonic() - began_s)
        elif reading is self._places.prefilling and reading.length > length:  # else nobody waited for it
            self._pace.read(reading.length - length, time.monotonic() - began_s, wrote=writing > 0)

    def _release(self, row: Row) -> None:
        row.done = True
        self._places.release(row)
        self._blocked = False

    def _drop_cancelled(self) -> None:
        for row in [row for row in self._waiting if row.cancelled]:
            self._waiting.remove(row)
            self._leaves_queue(row)
            row.end("cancelled")
        for row in [row for row in self._places.rows if row.cancelled]:
            row.end("cancelled")
            self._release(row)

    def _fail(self, error: Exception) -> None:
        """A step could not be computed: its rows get the error, requests that wait are not concerned. When
        nothing ran, it is the oldest of them that could not begin.
        """
        rows = self._places.rows or list(self._waiting)[:1]
        for row in rows:
            row.done = True
            row.stream.put(error)
        for row in [row for row in self._waiting if row.done]:
            self._waiting.remove(row)
            self._leaves_queue(row)
        self._blocked = False
        self._steps.reset()
        self._places.reset()
        self._desk.done(None)
        self._bell.ring()
        if not isinstance(error, RuntimeFault):
            self._clear_prefixes()  # whatever has happened to the device may have happened to pages

    def _abandon(self, error: Exception) -> None:
        """The thread waits for another machine, and will for ever. Called on another one."""
        self._thread.abandon(error)
        self._tell_all(error)

    def _tell_all(self, error: Exception) -> None:
        """What every stream ends with."""
        for row in [*self._waiting, *self._places.rows]:
            row.stream.put(error)
        self._waiting.clear()
        self._bell.ring()

    def _end_all(self, reason: BaseException | None) -> None:
        """The thread ends: so does every stream. All are told before anything else is tried."""
        self._threads.rest()
        placed = self._places.rows
        for row in [*self._waiting, *placed]:
            if reason is None:
                row.end("cancelled")
            else:
                row.stream.put(_for_readers(reason))
        self._waiting.clear()
        self._bell.ring()
        if reason is None:
            for row in placed:
                self._release(row)
        if self._lead is not None and not self._lead.end():
            self._thread.strand()


def _for_readers(reason: BaseException) -> Exception:
    """An exit, say, is meant for the engine's thread and may not end that of a reader."""
    if isinstance(reason, Exception):
        return reason
    ended = ThreadEnded(f"it ended: {reason!r}")
    ended.__cause__ = reason
    return ended
