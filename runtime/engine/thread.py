"""The one thread that touches MLX.

Lazy arrays and streams cannot change threads; evaluated arrays can, and `mx.eval` releases the interpreter
lock. So every array is made and evaluated here, and everybody else hands over closures and receives plain
values.

Whoever waits for this thread is told when it will not answer. An error of a closure goes to whoever posted
it, an error of `work` to `failed`, and the thread lives on. Where it cannot (`failed` raises as well, or
`work` something that is not an Exception), it ends: what was posted and has not run is refused, `ended` is
told why, and whoever comes later gets ThreadEnded at once.
"""

import atexit
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import mlx.core as mx

from runtime import streams
from runtime.forks import claim

T = TypeVar("T")
Refuse = Callable[[BaseException], object]
"""Told, in place of a result, what went wrong."""


class ThreadEnded(RuntimeError):
    """The MLX thread runs no more: it was closed, or ended by an error, which is then the cause."""


_FORKED = ThreadEnded("only the thread that forks goes on in the new process")


def forked() -> ThreadEnded:
    """What to say in a fork."""
    error = ThreadEnded("it runs in the process that this one was forked from")
    error.__cause__ = _FORKED
    return error


class MlxThread:
    """Runs posted closures in order and, once it serves, work between them."""

    def __init__(self) -> None:
        """Raises Forked."""
        claim()
        self._work: Callable[[], bool] = lambda: False
        self._failed: Callable[[Exception], None] = lambda _error: None
        self._ended: Callable[[BaseException | None], None] = lambda _reason: None
        self._inbox: deque[tuple[Callable[[], object], Refuse]] = deque()
        # No Condition, which is written in Python: an interrupt (Ctrl-C) that strikes whoever posts inside of
        # it would leave its lock taken for ever. A handler of signals may post in the middle of a post.
        self._lock = threading.RLock()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._nudged = False
        self._closing = False
        self._over = False
        self._reason: BaseException | None = None
        self._turning_s: float | None = None
        self._asked: Refuse | None = None
        self._stuck = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="modelkit-mlx", daemon=True)
        self._thread.start()
        # A program that never closes us must still end in good order.
        atexit.register(self.close)

    def serve(
        self,
        work: Callable[[], bool],
        *,
        failed: Callable[[Exception], None],
        ended: Callable[[BaseException | None], None],
    ) -> None:
        """From now on call `work` between closures, again and again for as long as it returns True.

        It must return soon (one step): closures wait for it. failed: sets right what an error of `work` left
        behind, so that it can be called again. ended: called once, on the thread, when no closure will run
        any more; given the error that was the reason, None after `close`. Neither may wait for the thread.
        """

        def begin() -> None:
            self._work, self._failed, self._ended = work, failed, ended

        self.call(begin)

    def post(self, closure: Callable[[], object], refused: Refuse) -> None:
        """Run `closure` on the thread, soon. refused: called, on the thread, with what the closure raised, or
        with ThreadEnded when it will not run. Raises ThreadEnded where that is known already.
        """
        if self.elsewhere:
            raise forked()
        with self._lock:
            if self._closing or self._over:
                raise self._refusal()
            self._inbox.append((closure, refused))
            self._wake.put(None)

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the thread and wait for its result; its exception is raised here."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a call from the MLX thread would wait for itself")
        # No Future: whoever waits for one may be interrupted while it has what this thread needs to answer.
        answer: queue.SimpleQueue[tuple[T] | BaseException] = queue.SimpleQueue()
        self.post(lambda: answer.put((function(),)), answer.put)
        found = answer.get()
        if isinstance(found, BaseException):
            raise found
        return found[0]

    def nudge(self) -> None:
        """Let it look for work. Takes no lock and raises nothing: for any thread, in the middle of anything.

        Where it does not run any more, it does nothing.
        """
        if not self.elsewhere:
            self._nudged = True
            self._wake.put(None)

    @property
    def alive(self) -> bool:
        """Does it still take what is posted?"""
        return not (self._closing or self._over or self.elsewhere)

    @property
    def elsewhere(self) -> bool:
        """Is this a fork of the process that has the thread? Its locks may be held for ever then."""
        return os.getpid() != self._process

    def close(self) -> None:
        """Finish the posted closures, stop working and join. Safe to call twice, and from any other
        thread. In a forked process there is nothing to close.
        """
        if self.elsewhere:
            return
        with self._lock:
            self._closing = True
            self._wake.put(None)
            abandoned = self._over and self._thread.is_alive() and self._turning_s is not None
        if threading.current_thread() is not self._thread and not abandoned:
            self._thread.join()
            atexit.unregister(self.close)

    def mark_stuck(self) -> None:
        """What is in flight waits for a machine that never answers: end without it. Whoever knows that has to
        end the process without MLX as well, which would wait.
        """
        self._stuck = True
        streams.mark_stuck()

    def abandon(self, reason: Exception) -> None:
        """From another thread, where this one is known to wait for something that never comes: it runs no
        more, and whoever waits for it is told.
        """
        with self._lock:
            if self._over:
                return
            self._over, self._reason = True, reason
        self.mark_stuck()
        with self._lock:
            left = [refused for _, refused in self._inbox]
            self._inbox.clear()
        if self._asked is not None:
            self._asked(reason)
        for refused in left:
            refused(self._refusal())
        atexit.unregister(self.close)

    def _refusal(self) -> ThreadEnded:
        reason = self._reason
        ended = ThreadEnded("the MLX thread is closed" if reason is None else f"it ended: {reason!r}")
        ended.__cause__ = reason
        return ended

    def _run(self) -> None:
        with streams.reused_stream():
            try:
                self._serve()
            except BaseException as error:  # noqa: BLE001 -- whoever waits or comes later is told
                self._reason = error
            finally:
                self._end()

    def _serve(self) -> None:
        busy = False
        while True:
            while not (self._inbox or busy or self._nudged or self._closing):
                self._wake.get()
            self._nudged = False
            if self._closing and not self._inbox:
                return
            for _ in range(len(self._inbox)):
                self._turning_s = time.monotonic()
                closure, self._asked = self._inbox.popleft()
                _attempt(closure, self._asked)
            self._asked = None
            busy = self._turn()

    @property
    def busy_s(self) -> float:
        """How long the present step or closure has been running; 0 between them. From any thread."""
        began_s = self._turning_s
        return 0.0 if began_s is None else time.monotonic() - began_s

    def _turn(self) -> bool:
        self._turning_s = time.monotonic()
        try:
            return self._work()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the thread lives on
            self._failed(error)
            return True
        finally:
            self._turning_s = None

    def _end(self) -> None:
        with self._lock:
            self._over = True
            left = list(self._inbox)
            self._inbox.clear()
        try:
            for _, refused in left:
                refused(self._refusal())
        finally:
            try:
                self._ended(self._reason)
            finally:
                # MLX keeps a worker for each stream of this thread; one that outlives us aborts the process
                # at exit.
                if not self._stuck:
                    mx.synchronize()
                    mx.clear_streams()


def _attempt(closure: Callable[[], object], refused: Refuse) -> None:
    try:
        closure()
    except BaseException as error:  # noqa: BLE001 -- handed to whoever posted it
        refused(error)
