"""The engine: requests in, tokens out, many rows at once, on one MLX thread.

This is its door, for any thread. What happens to requests behind it, on the engine's own, is in `loop`.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from runtime.cache.prefix import Entry
from runtime.cpu.threads import Choice
from runtime.engine.activity import Activity
from runtime.engine.adapters import AdapterSource
from runtime.engine.loop import Loop
from runtime.engine.notifier import Notifier, Wake
from runtime.engine.options import Options
from runtime.engine.pace import Pace
from runtime.engine.request import Request
from runtime.engine.room import Drafters, furnish
from runtime.engine.row import Row
from runtime.engine.stream import Stream
from runtime.engine.thread import MlxThread, ThreadEnded
from runtime.engine.waiting import Waiting
from runtime.loaded import LoadedModel

if TYPE_CHECKING:
    from runtime.ranks.lead import Leading

T = TypeVar("T")


class Engine:
    """Runs one loaded model. `load` and `drafters` are called on the engine's thread, where all arrays live.

    learned: what `learned()` returned for an earlier engine of this model; it affects only speed. adapters:
    those that requests may name. leading: given where only this machine's share of a model is loaded, and
    other machines have the rest. thread: one on which loading has begun; from now on it is the engine's.
    """

    def __init__(
        self,
        load: Callable[[], LoadedModel],
        options: Options,
        drafters: Drafters | None = None,
        learned: object = None,
        adapters: Sequence[AdapterSource] = (),
        leading: "Leading | None" = None,
        thread: MlxThread | None = None,
    ) -> None:
        self._options = options
        self._queue, self._notifier = Waiting(options.max_waiting), Notifier()
        self._closed, self._closing = False, threading.Lock()
        self._thread = thread or MlxThread()
        if leading is not None:
            leading.group.stuck = self._thread.abandon

        def made() -> Loop:
            room = furnish(load(), options, drafters, learned, adapters, leading)
            return Loop(room, options, self._queue, self._notifier, self._thread.nudge)

        try:
            loop = self._thread.call(made)
            self._loop, self.model, self.adapters = loop, loop.room.model, loop.room.adapters
            self._threads, self._vocab_size = loop.room.threads, self.model.vocab_size
            self._reads = self.model.described.start_id is not None
            if leading is not None:
                leading.group.stuck = self._abandon
            self._thread.serve(loop.work, failed=loop.fail, ended=self._ended)
        except BaseException:
            self._thread.close()
            raise

    def submit(self, request: Request, wake: Wake | None = None) -> Stream:
        """Queue a request. wake: called on the engine's thread when there is something new to `take` from the
        stream: at most once per step, and when the stream ends; see `notifier`.

        Raises BadTokenIds for ids outside the vocabulary, ValueError for an impossible length or an unknown
        adapter, QueueFull when too many requests wait, ThreadEnded when the engine no longer runs.
        """
        request.check(self._vocab_size, self._options.context_length, reads=self._reads)
        self.adapters.check(request.adapters)
        stream = Stream(self._notifier, wake, self._thread.nudge)
        row = Row(request, stream, self.adapters.space(request.adapters))
        try:
            self._queue.enter(row)
            self._thread.post(lambda: self._loop.enter(row), stream.put)
        except BaseException:
            stream.cancel()  # an interrupt may come when it was posted already
            self._queue.leave(row)
            raise
        return stream

    def call(self, function: Callable[[LoadedModel], T]) -> T:
        """Run `function` on the engine's thread between two steps and return its result."""

        def run() -> T:
            self._notifier.notify()  # it may take longer than a step
            self._threads.before_step(time.monotonic())
            with self._loop.bounded():
                return function(self.model)

        return self._thread.call(run)

    def pace(self) -> Pace:
        """How much one `call` may read of what is no prompt, beside all rows; to be told what that took."""
        return self._loop.pace.apart()

    def learned(self) -> dict[str, Any]:
        """What drafters have been found to cost and gain, as plain data for a later engine of this model."""
        return self._thread.call(lambda: self._loop.room.drafting.learned())

    def threads(self) -> Choice:
        """How many threads the matrix products of the last step had, and why."""
        return self._threads.choice

    @property
    def busy_s(self) -> float:
        """How long the present step has been running; 0 while there is none."""
        return self._thread.busy_s

    def list_prefixes(self) -> list[Entry]:
        """What is kept of earlier sequences: nodes of a tree, parents before children."""
        entries = self._thread.call(lambda: self._loop.prefixes())
        return [replace(entry, space=self.adapters.readable(entry.space)) for entry in entries]

    def clear_prefixes(self) -> None:
        """Forget what is kept of earlier sequences, except what running ones use."""
        self._thread.call(lambda: self._loop.clear_prefixes())

    def limit_prefixes(self, limit_bytes: int) -> int:
        """From now on keep at most so many bytes of earlier sequences. What exceeds them is forgotten, except
        what running sequences use. Returns the bytes that may be in use now: the limit, or what is still held
        if that is more; 0 for an engine that was started without keeping anything, which goes on so.
        """
        return self._thread.call(lambda: self._loop.limit_prefixes(limit_bytes))

    def limit_layers(self, limit_bytes: int) -> None:
        """From now on the layer memory of all sequences, drafters' included, may grow to so many bytes.
        Returns at once; does nothing where the engine has ended.
        """
        with suppress(ThreadEnded):
            self._thread.post(lambda: self._loop.limit_layers(limit_bytes), lambda _error: None)

    @property
    def elsewhere(self) -> bool:
        """Is this a fork of the process in which it runs? There it does not work, and need not be closed."""
        return self._thread.elsewhere

    @property
    def alive(self) -> bool:
        """Can it still be asked for anything?"""
        return self._thread.alive

    @property
    def activity(self) -> Activity:
        """Does not wait for the engine's thread. Raises ThreadEnded once it is being closed."""
        try:
            return self._loop.activity
        except AttributeError:  # what it looks at was let go of
            if not self._closed:
                raise
        raise ThreadEnded("the engine is closed")

    def close(self) -> None:
        """Cancel everything, stop the thread, and free weights, layer memory and pages. Streams end as
        cancelled. Safe to call twice, and from several threads.
        """
        if self.elsewhere:
            return
        self._thread.close()
        with self._closing:
            if not self._closed:
                self._closed = True
                self._loop.close()
                del self.model  # whoever still holds the engine keeps no weights alive

    def _ended(self, reason: BaseException | None) -> None:
        if not self._loop.end_all(reason):
            self._thread.mark_stuck()

    def _abandon(self, error: Exception) -> None:
        """The engine's thread waits for another machine, and would for ever. Called on another thread."""
        self._thread.abandon(error)
        self._loop.tell_all(error)
