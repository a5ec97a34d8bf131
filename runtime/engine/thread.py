"""The one thread that touches MLX.

Lazy arrays and streams cannot change threads; evaluated arrays can, and `mx.eval` releases the interpreter
lock. So every array is made and evaluated here, and everybody else hands over closures and receives plain
values.
"""

import atexit
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import mlx.core as mx

T = TypeVar("T")


class MlxThread:
    """Runs posted closures in order and, between them, `work` for as long as it returns True.

    `work` must return soon (one step): closures wait for it.
    """

    def __init__(self, work: Callable[[], bool], name: str = "modelkit-mlx") -> None:
        self._work = work
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        # A program that never closes us must still end in good order.
        atexit.register(self.close)

    def post(self, closure: Callable[[], None]) -> None:
        """Run `closure` on the thread, soon. It must not raise."""
        with self._wake:
            if self._closing:
                raise RuntimeError("the MLX thread is closed")
            self._inbox.append(closure)
            self._wake.notify()

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the thread and wait for its result; its exception is raised here."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 -- handed to the caller, who raises it
                future.set_exception(error)

        self.post(run)
        return future.result()

    def close(self) -> None:
        """Finish the posted closures, stop working and join. Safe to call twice, and from any other
        thread.
        """
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            atexit.unregister(self.close)

    def _run(self) -> None:
        busy = False
        while True:
            with self._wake:
                while not self._inbox and not busy and not self._closing:
                    self._wake.wait()
                if self._closing and not self._inbox:
                    break
                waiting = list(self._inbox)
                self._inbox.clear()
            for closure in waiting:
                closure()
            busy = self._work()
        # MLX keeps a worker for each stream of this thread; one that outlives us aborts the process at exit.
        mx.synchronize()
        mx.clear_streams()
