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
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from runtime.cache.budget import Budget
from runtime.cache.build import LayerMemory, build_memory
from runtime.cache.layout import sequence_bytes
from runtime.cache.prefix import Entry
from runtime.cache.shift import Shift
from runtime.cpu.threads import Choice, Threads
from runtime.engine.options import Options
from runtime.engine.places import Places
from runtime.engine.prefixes import Prefixes
from runtime.engine.request import Request
from runtime.engine.row import Row
from runtime.engine.scheduler import Load, decide
from runtime.engine.steps import Steps
from runtime.engine.stream import Stream
from runtime.engine.thread import MlxThread, ThreadEnded
from runtime.errors import CacheFull, RuntimeFault
from runtime.loaded import LoadedModel, check_ids
from runtime.nn.rope_spec import long_after
from runtime.speculate.desk import Desk
from runtime.speculate.drafter import Drafter

T = TypeVar("T")


class Engine:
    """Runs one loaded model. `load` and `drafters` are called on the engine's thread, where all arrays
    live. learned: what `learned()` gave of an earlier engine of this model; speed alone depends on it.
    """

    def __init__(
        self,
        load: Callable[[], LoadedModel],
        options: Options,
        drafters: Callable[[LoadedModel, LayerMemory], Mapping[str, Drafter]] | None = None,
        learned: object = None,
    ) -> None:
        self._options, self._remembered = options, learned
        self._waiting: deque[Row] = deque()
        self._blocked = False
        self._ready = False
        self._closing = threading.Lock()
        self._thread = MlxThread(self._work, failed=self._fail, ended=self._end_all)
        try:
            self.model = self._thread.call(load)
            self._vocab_size = self.model.vocab_size
            self._thread.call(lambda: self._furnish(drafters))
        except BaseException:
            self._thread.close()
            raise

    def submit(self, request: Request) -> Stream:
        """Queue a request. Raises BadTokenIds for ids outside the vocabulary, ValueError for an impossible
        length, ThreadEnded when the engine runs no more.
        """
        check_ids(request.ids, self._vocab_size)
        check_ids([*request.sampling.logit_bias, *request.sampling.suppressed], self._vocab_size)
        context = self._options.context_length
        wanted = len(request.ids) + (request.max_tokens if request.keep is None else 1)
        if not request.ids or request.max_tokens < 0 or wanted > context:
            raise ValueError(
                f"{len(request.ids)} prompt tokens and {request.max_tokens} to generate "
                f"do not fit a context of {context}"
            )
        if request.keep is not None and not 0 <= request.keep <= len(request.ids):
            raise ValueError(f"{request.keep} tokens to keep of a prompt of {len(request.ids)}")
        stream = Stream()
        row = Row(request, stream)
        self._thread.post(lambda: self._waiting.append(row), stream.put)
        return stream

    def call(self, function: Callable[[LoadedModel], T]) -> T:
        """Run `function` on the engine's thread between two steps and return its result."""

        def run() -> T:
            self._threads.before_step(time.monotonic())
            return function(self.model)

        return self._thread.call(run)

    def learned(self) -> dict[str, Any]:
        """What is known of the drafters' costs and worth, for a later engine of this model; plain data."""
        return self._thread.call(lambda: self._desk.learned())

    def threads(self) -> Choice:
        """What products of the last step had."""
        return self._threads.choice

    def list_prefixes(self) -> list[Entry]:
        """What is kept of earlier sequences: nodes of a tree, parents before children."""
        return self._thread.call(lambda: self._prefixes.describe() + self._desk.describe())

    def clear_prefixes(self) -> None:
        """Forget it, but for what running sequences stand on."""
        self._thread.call(self._clear_prefixes)

    def close(self) -> None:
        """Cancel everything, stop the thread, and let go of weights, layer memory and pages. Streams end as
        cancelled. Safe to call twice, from several threads too.
        """
        self._thread.close()
        with self._closing:
            if self._ready:
                self._ready = False
                self._prefixes.close()
                self._let_go()

    def _furnish(self, drafters: Callable[[LoadedModel, LayerMemory], Mapping[str, Drafter]] | None) -> None:
        """Everything that stands around the model."""
        options, described = self._options, self.model.described
        self._memory = self._new_memory()
        standing = {} if drafters is None else drafters(self.model, self._memory)
        self._desk = Desk(standing, self._memory, self._remembered)
        self._prefixes = Prefixes.of(
            self._memory,
            options,
            self.model.dtype,
            limit_bytes=self._own_prefix_bytes(),
            long_after=long_after(described.config),
            ahead=self._desk.ahead,
        )
        self._threads = Threads(options.threads)
        self._places = Places(self._memory, self._prefixes, self._desk, options.max_rows)
        self._decoding = self._places.decoding
        self._steps = Steps(self.model, self._memory, self._prefixes, self._desk, self._places, self._release)
        self._ready = True

    def _let_go(self) -> None:
        """Whoever still holds the engine keeps no weights alive."""
        del self.model, self._memory, self._desk, self._prefixes
        del self._places, self._decoding, self._steps

    def _new_memory(self) -> LayerMemory:
        budget = Budget(self._options.cache_bytes)
        return build_memory(
            self.model.described.layout,
            dtype=self.model.dtype,
            kept_format=self._options.kv_format,
            budget=budget,
        )

    def _own_prefix_bytes(self) -> int | None:
        """The target's part of options.prefix_bytes; drafters have the rest."""
        options, tokens = self._options, self._options.context_length
        if options.prefix_bytes is None:
            return None
        own = sequence_bytes(self._memory.layout, tokens, kept_format=options.kv_format)
        return self._desk.share(options.prefix_bytes, own, tokens)

    def _clear_prefixes(self) -> None:
        self._prefixes.clear()
        self._desk.forget()

    def _work(self) -> bool:
        """One step; False when there is nothing to do."""
        if not self._ready:
            return False
        self._drop_cancelled()
        self._make_room()
        work = decide(self._load(), self._options.budget_tokens)
        if work.idle:
            self._threads.rest()
            self._desk.idle()
            return False
        if work.admit:
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
        if row.shift is None:
            row.shift = self._shift(row.request)
        if row.request.max_tokens > 0:
            try:
                self._places.open(row)
            except CacheFull as error:
                self._wait_for_room(error)
                return
        self._waiting.popleft()
        if not row.admitted:
            row.admitted, row.cached = time.monotonic(), row.length
        if row.request.max_tokens == 0:
            row.end("length")

    def _wait_for_room(self, error: CacheFull) -> None:
        """There is no place for the oldest waiting row."""
        if self._places.make_way():
            return
        self._blocked = bool(self._decoding)
        if not self._blocked:
            self._waiting.popleft().stream.put(error)

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
        self._threads.before_step(time.monotonic())
        try:
            self._steps.run(prefill)
        except CacheFull as error:
            self._step_aside(error)

    def _release(self, row: Row) -> None:
        row.done = True
        self._places.release(row)
        self._blocked = False

    def _drop_cancelled(self) -> None:
        for row in [row for row in self._waiting if row.cancelled]:
            self._waiting.remove(row)
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
        self._blocked = False
        self._steps.reset()
        self._places.reset()
        self._desk.done(None)
        if not isinstance(error, RuntimeFault):
            self._clear_prefixes()  # whatever has happened to the device may have happened to pages

    def _end_all(self, reason: BaseException | None) -> None:
        """The thread ends: so does every stream. All are told before anything else is tried."""
        if not self._ready:
            return
        self._threads.rest()
        placed = self._places.rows
        for row in [*self._waiting, *placed]:
            if reason is None:
                row.end("cancelled")
            else:
                row.stream.put(_for_readers(reason))
        self._waiting.clear()
        if reason is None:
            for row in placed:
                self._release(row)


def _for_readers(reason: BaseException) -> Exception:
    """An exit, say, is meant for the engine's thread and may not end that of a reader."""
    if isinstance(reason, Exception):
        return reason
    ended = ThreadEnded(f"it ended: {reason!r}")
    ended.__cause__ = reason
    return ended
