"""Streams of MLX that threads take over from each other.

On a processor MLX keeps a thread of the system for every stream that there ever was, also when the stream and
the thread that made it are gone. A server that opens and closes models, or a program that makes packages,
would run out of threads in days. So threads of ours that compute take streams that nobody has, and leave them
to the next ones. Asking MLX for the calling thread's own stream already makes one (`mx.stream` does, to come
back to it), so none of them may.

What MLX keeps for a thread that has computed is let go of when the system's thread ends, a moment after
Python's has, and that needs the interpreter: where it is gone by then, the process aborts. So threads that
have given their streams back are waited for when the program ends.
"""

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TypeVar

import mlx.core as mx

from runtime.cpu.native import on_processor
from runtime.forks import claim

T = TypeVar("T")

_free: list[mx.Stream] = []
_guard = threading.Lock()
_stuck = False
_ENDS_WITHIN_S = 1.0
_ending: list[tuple[int, float]] = []
"""Threads that have computed and are about to end, by the system's number, and since when."""


def _end(threads: Iterable[int]) -> None:
    now = time.monotonic()
    with _guard:
        _ending[:] = [(one, since) for one, since in _ending if now - since < _ENDS_WITHIN_S]
        _ending.extend((one, now) for one in threads)


def _await_ends() -> None:
    """Until the system has none of them any more; where it cannot be asked, for a little while."""
    running = {thread.native_id for thread in threading.enumerate()}
    for one, since in _ending:
        if one in running:
            continue
        while time.monotonic() - since < (_ENDS_WITHIN_S if sys.platform == "linux" else 0.05):
            if sys.platform == "linux" and not os.path.exists(f"/proc/self/task/{one}"):
                break
            time.sleep(0.001)  # without the interpreter, which it may be waiting for


atexit.register(_await_ends)


def mark_stuck() -> None:
    """MLX waits for a machine that never answers, and so would whoever asks it to put something in order."""
    global _stuck
    _stuck = True


def is_stuck() -> bool:
    return _stuck


@contextmanager
def reused_streams() -> Generator[Callable[[], None]]:
    """What a thread calls that will compute on a processor until the end of the block, and then never again.
    What it made and has not evaluated must not leave the block. Raises Forked.
    """
    claim()
    taken: list[mx.Stream] = []
    threads: set[int] = set()

    def take() -> None:
        threads.add(threading.get_native_id())
        with _guard:
            stream = _free.pop() if _free else mx.new_thread_unsafe_stream(mx.cpu)
            taken.append(stream)
        mx.set_default_stream(stream)

    try:
        yield take
    finally:
        if not _stuck:  # one that waits for a lost machine would never be synchronous
            for stream in taken:
                mx.synchronize(stream)
            with _guard:
                _free.extend(taken)
        _end(threads)


@contextmanager
def reused_stream() -> Generator[None]:
    """`reused_streams` for the calling thread alone. One that computes on a GPU has what MLX gives it."""
    try:
        with reused_streams() as take:
            if on_processor():
                take()
            yield
    finally:
        if not on_processor():
            _end([threading.get_native_id()])


def on_own_thread(function: Callable[[], T]) -> T:
    """What `function` returns, called on a thread of ours. Of a caller's that made arrays and has ended, the
    worker would be left, and would abort the process at its exit. Arrays that it returns are evaluated.
    Raises Forked.
    """
    claim()
    outcome: SimpleQueue[tuple[T] | BaseException] = SimpleQueue()

    def run() -> None:
        with reused_stream():
            try:
                outcome.put((function(),))
            except BaseException as error:  # noqa: BLE001 -- raised again by whoever asked
                outcome.put(error)

    thread = threading.Thread(target=run, name="modelkit-own")
    thread.start()
    found = outcome.get()
    thread.join()  # or the program may end while it still gives its stream back
    if isinstance(found, BaseException):
        raise found
    return found[0]
