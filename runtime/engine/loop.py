"""What the engine's thread does with requests: places for those that wait, steps, and the end of rows.

What a step computes is in `steps`. When layer memory is full, the youngest row steps aside: it gives up its
place, waits in front of all others until some row has ended, and then reads what it has so far, generated
tokens included, as one prompt. Only a row that has all memory for itself fails with CacheFull.

Invariant: everything runs on the engine's thread unless its docstring says otherwise.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial

from runtime import device
from runtime.cache.layout import sequence_bytes, wide_step_bytes
from runtime.cache.prefix import Entry
from runtime.cache.shift import Shift
from runtime.engine.activity import Activity
from runtime.engine.fetching import Fetch, Fetches
from runtime.engine.free_memory import FreeMemory
from runtime.engine.memory_limits import MemoryLimits
from runtime.engine.notifier import Notifier
from runtime.engine.options import Options
from runtime.engine.pace import Pace
from runtime.engine.request import Request
from runtime.engine.room import Room, own_prefix_bytes
from runtime.engine.row import Row
from runtime.engine.scheduler import Load, budget, decide, passes
from runtime.engine.steps import Steps
from runtime.engine.thread import ThreadEnded
from runtime.engine.waiting import Waiting
from runtime.errors import CacheFull, RankLost, RuntimeFault
from runtime.nn.operations import ops


class Loop:
    """Drives the parts in `room`. queue: counts requests that had no place yet. wake: has the thread look for
    work; for any thread.
    """

    def __init__(
        self, room: Room, options: Options, queue: Waiting, notifier: Notifier, wake: Callable[[], object]
    ) -> None:
        self._options, self._wake = options, wake
        self._waiting: deque[Row] = deque()
        self._queue, self._notifier = queue, notifier
        self._blocked = False
        self.room = room
        self._memory, self._threads, self._lead = room.memory, room.threads, room.lead
        self._prefixes, self._sources, self._drafting = room.prefixes, room.sources, room.drafting
        self._places, self._adapters = room.places, room.adapters
        self._steps = Steps(room, self._release, notifier)
        self._decoding = room.places.decoding
        self._budget_tokens = budget(options.budget_tokens, room.parts)
        self._fetches = Fetches(self._fetch)
        self._pace = Pace(steady=ops.table.steady)
        self._limits = MemoryLimits(room.memory.budget, options.prefix_bytes, self._keep)
        if options.spare_bytes is not None:
            self._free = self._free_memory(options.spare_bytes)
            self._wide_bytes = wide_step_bytes(
                room.memory.layout,
                options.context_length,
                options.budget_tokens,
                room.model.dtype.size,
                options.kv_format,
            )
            room.memory.budget.free = self._free_bytes

    def enter(self, row: Row) -> None:
        """Let a row wait for a place, behind all others."""
        self._waiting.append(row)

    def work(self) -> bool:
        """One step; False when there is nothing to do."""
        more = False
        try:
            with self.bounded():
                more = self._next()
        finally:
            self._notifier.step_over(more=more)
        return more

    def bounded(self) -> AbstractContextManager[None]:
        """A context in which waiting for other machines has its time limit."""
        return nullcontext() if self._lead is None else self._lead.group.bounded()

    @property
    def activity(self) -> Activity:
        """From any thread."""
        return Activity(
            running=len(self._places.rows),
            waiting=self._queue.count,
            places=self._options.max_rows,
            layer_bytes=self._memory.budget.held_bytes,
            prefix_bytes=self._kept_bytes,
            prefix_limit_bytes=self._limits.kept_limit,
            drafters=self._drafting.names,
        )

    def prefixes(self) -> list[Entry]:
        """What is kept of earlier sequences: nodes of trees, parents before children."""
        return [*self._prefixes.describe(), *self._sources.describe(), *self._drafting.describe()]

    @property
    def pace(self) -> Pace:
        """How much of a prompt a step reads."""
        return self._pace

    def clear_prefixes(self) -> None:
        """Forget what is kept of earlier sequences, except what running ones use."""
        self._prefixes.clear()
        self._sources.clear()
        self._drafting.forget()

    def limit_layers(self, limit_bytes: int) -> None:
        """See Engine.limit_layers."""
        self._limits.limit_layers(limit_bytes)
        self._blocked = False  # there may be room now

    def limit_prefixes(self, limit_bytes: int) -> int:
        """See Engine.limit_prefixes."""
        return self._limits.limit_kept(limit_bytes)

    def _keep(self, limit_bytes: int) -> int:
        own = own_prefix_bytes(self._memory, self._options, self._drafting, limit_bytes)
        if own is not None:
            self._prefixes.resize(own)
            self._sources.resize(own)
        return self._kept_bytes

    @property
    def _kept_bytes(self) -> int:
        return self._prefixes.kept_bytes + self._sources.kept_bytes + self._drafting.kept_bytes

    def _free_memory(self, spare_bytes: int) -> FreeMemory:
        """Of this machine, or of all ranks': each of them leaves so much of its own."""
        if self._lead is None:
            return FreeMemory(device.available_bytes, spare_bytes)
        self._memory.budget.because = self._lead.tightest
        return FreeMemory(partial(self._lead.room_bytes, spare_bytes), 0)

    def _free_bytes(self) -> int:
        """What the machine has for rows beside what they have, and what may yet be kept of earlier ones."""
        memory, kept = self._memory, self._kept_bytes
        left = self._free.left(memory.budget.held_bytes + kept, memory.unwritten_bytes)
        beside = max(memory.growing_bytes, self._wide_bytes)
        return left - beside - max(self._limits.kept_limit - kept, 0)

    def fail(self, error: Exception) -> None:
        """A step could not be computed: its rows get the error, and waiting requests are not affected. If
        nothing was running, it was the oldest waiting one that could not begin, and it gets the error.
        """
        rows = self._places.rows or list(self._waiting)[:1]
        for row in rows:
            row.done = True
            row.stream.put(error)
        for row in [row for row in self._waiting if row.done]:
            self._leave(row)
        self._blocked = False
        self._steps.reset()
        self._places.reset()
        self._drafting.done(None)
        self._notifier.notify()
        if not isinstance(error, RuntimeFault):
            self.clear_prefixes()  # whatever has happened to the device may have happened to pages

    def end_all(self, reason: BaseException | None) -> bool:
        """The thread ends, and so does every stream; all are told before anything else is tried. False if
        another machine could not be told: what is in flight waits for it.
        """
        self._threads.rest()
        placed = self._places.rows
        for row in [*self._waiting, *placed]:
            if reason is None:
                row.end("cancelled")
            else:
                row.stream.put(_for_readers(reason))
        self._waiting.clear()
        self._notifier.notify()
        if reason is None:
            with suppress(RankLost), self.bounded():
                for row in placed:
                    self._release(row)
        return self._lead is None or self._lead.end()

    def close(self) -> None:
        """The thread has ended: free weights, layer memory and pages."""
        self._prefixes.close()
        self._sources.close()
        self._adapters.let_go()
        del self.room, self._memory, self._drafting, self._prefixes, self._sources
        del self._places, self._decoding, self._steps, self._fetches

    def tell_all(self, error: Exception) -> None:
        """End every stream with this error. For any thread, when the engine's is known to be stuck."""
        for row in [*self._waiting, *self._places.rows]:
            row.stream.put(error)
        self._waiting.clear()
        self._notifier.notify()

    def _next(self) -> bool:
        self._drop_cancelled()
        self._make_room()
        self._restore()
        self._fetches.go_on(free=self._places.free > 0 and not self._blocked)
        next_row = self._next_row()
        paced = self._pace.beside if self._decoding else self._pace.alone
        work = decide(self._load(next_row), self._budget_tokens, paced)
        if not work.admit:
            self._fetches.store()  # whom it was read for has no place yet
        if work.idle:
            self._threads.rest()
            self._places.rest(borrowed=self._limits.borrowed)
            self._drafting.idle()
            self._limits.give_back()
            if self._lead is not None:
                self._lead.rest()
            return False
        if work.admit:
            self._notifier.notify()  # what is known of the prompt may be much to copy
            assert next_row is not None
            self._admit(next_row)
        elif work.decode or work.prefill:
            self._step(work.prefill)
        return True

    def _restore(self) -> None:
        """Put the row that is being read back where it is known from, for as long as others hardly notice.
        Where nobody writes it is done in one: to wait for each layer took a tenth of what a row waits for.
        """
        if not self._places.restoring:
            return
        self._notifier.notify()
        self._steps.read_back()  # a write into a buffer that a step on its way uses would copy all of it
        self._drafting.done(None)
        until = time.monotonic() + self._pace.gap_s
        try:
            if not self._decoding:
                self._places.restore_all()
            while self._places.restoring:
                self._places.restore()
                if time.monotonic() >= until:
                    return
        except CacheFull as error:
            self._step_aside(error)

    def _next_row(self) -> Row | None:
        """The row to get a place next: the oldest that waits for nothing else or, while a long prompt is
        being read, one that may pass it.
        """
        reading = self._places.prefilling
        if reading is not None and self._places.passed is not None:
            return None
        ready = (row for row in self._waiting if not self._fetches.waits(row))
        return next((row for row in ready if reading is None or self._passes(row, reading)), None)

    def _passes(self, row: Row, reading: Row) -> bool:
        """May it be read first? What is kept of it need not be read: that is looked up once, as many may
        wait, and before it passes again, as some of it may have been forgotten.
        """
        if row.known is None:
            row.known = self._prefixes.kept_tokens(row)
        read, unread = reading.length - reading.since, reading.unread
        if passes(row.to_read, read, unread):
            row.known = self._prefixes.kept_tokens(row)
        return passes(row.to_read, read, unread)

    def _load(self, next_row: Row | None) -> Load:
        reading = self._places.prefilling
        waiting = 0 if self._blocked or next_row is None else len(self._waiting)
        return Load(
            len(self._decoding),
            reading.unread if reading else 0,
            waiting,
            self._places.free,
            restoring=self._places.restoring,
            passing=reading is not None and next_row is not None,
        )

    def _fetch(self, row: Row) -> Fetch | None:
        """What the disk alone knows of this waiting row."""
        live = enumerate(self._places.rows)
        return self._prefixes.fetch(row, live, self._wake) or self._sources.fetch(row, self._wake)

    def _leave(self, row: Row) -> None:
        """It waits no more."""
        self._waiting.remove(row)
        self._queue.leave(row)
        self._fetches.leave(row)

    def _admit(self, row: Row) -> None:
        """Open a place for a waiting row, once all is there that it begins with."""
        try:
            self._adapters.bring(row.request.adapters)
        except RuntimeFault as error:
            self._leave(row)
            row.stream.put(error)
            return
        if row.shift is None:
            row.shift = self._shift(row.request)
        if row.request.max_tokens > 0:
            if (never := self._never_fits(row)) is not None:
                self._leave(row)
                row.stream.put(never)
                return
            if not self._fetches.bring(row):
                return
            try:
                self._places.open(row)
            except CacheFull as error:
                self._wait_for_room(row, error)
                return
        self._leave(row)
        if not row.admitted_s:
            row.admitted_s, row.cached = time.monotonic(), row.length
        row.tell_progress()
        if row.request.max_tokens == 0:
            row.end("length")

    def _never_fits(self, row: Row) -> CacheFull | None:
        """Its ids have no room even where it is alone and nothing is kept of others. Said at once: many of
        them could be read until that shows.
        """
        memory, room_bytes = self._memory, self._memory.budget.room_bytes
        if room_bytes is None:
            return None
        # What is held is there, also under a limit that was set below it.
        most = memory.budget.held_bytes + max(room_bytes, 0) + self._limits.kept_limit
        dtype, kept_format = self.room.model.dtype, self._options.kv_format
        wanted = sequence_bytes(memory.layout, len(row.ids), dtype.size, kept_format=kept_format)
        return CacheFull(wanted, most, memory.budget.because()) if wanted > most else None

    def _wait_for_room(self, row: Row, error: CacheFull) -> None:
        """A waiting row could not get a place."""
        if (reading := self._places.prefilling) is not None:
            reading.since = reading.length  # nobody gives way to one that would pass it; later, perhaps
            return
        if self._places.make_way():
            return
        self._blocked = bool(self._decoding)
        if not self._blocked and self._limits.borrow(error):
            return
        if not self._blocked:
            self._leave(row)
            row.stream.put(error)

    def _step_aside(self, error: CacheFull) -> None:
        """Memory is full, and the part of the step that needed more was not done: the youngest row has to
        wait until another has ended.
        """
        self._steps.read_back()
        self._drafting.done(None)
        rows = self._places.rows
        if not rows or self._places.make_way() or (len(rows) == 1 and self._limits.borrow(error)):
            return
        # One that is being read was admitted last; it need not have come last, having stepped aside before.
        row = self._places.prefilling or max(rows, key=lambda row: row.submitted_s)
        if len(rows) == 1:
            row.stream.put(error)
        else:
            self._waiting.appendleft(row)
        self._places.release(row)
        self._blocked = len(rows) > 1

    def _shift(self, request: Request) -> Shift | None:
        if request.keep is None:
            return None
        layout, rotates = self.room.model.described.layout, self.room.model.network.shifts
        return Shift.of(request.keep, self._options.context_length, layout, rotates)

    def _make_room(self) -> None:
        """Deal with rows that have reached their limit. Those that have filled their context forget part of
        it, in place or by being read anew; others wait in front of all, to be read anew as long ones.
        """
        if not any(row.full for row in self._places.rows):
            return
        self._steps.read_back()  # which may end some of them
        self._drafting.done(None)
        for row in [row for row in self._places.rows if row.full]:
            if row.outgrown and row.shift is not None and row.shift.turns:
                self._places.shift(row, self.room.model.network.shifts)
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
            self._leave(row)
            row.end("cancelled")
        for row in [row for row in self._places.rows if row.cancelled]:
            row.end("cancelled")
            self._release(row)


def _for_readers(reason: BaseException) -> Exception:
    """An exit, say, is meant for the engine's thread and may not end that of a reader."""
    if isinstance(reason, Exception):
        return reason
    ended = ThreadEnded(f"it ended: {reason!r}")
    ended.__cause__ = reason
    return ended
