"""What threads that compute leave behind when they end: nothing, however many there were."""

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from runtime import streams
from runtime.cpu.native import on_processor
from runtime.engine.thread import MlxThread

RIGHT = [2.0, 2.0, 2.0]
_TASKS = Path("/proc/self/task")
counted = pytest.mark.skipif(not (_TASKS.is_dir() and on_processor()), reason="threads are counted on Linux")


def compute() -> Any:
    return (mx.ones(3) + 1).tolist()


def on_a_thread_of_its_own() -> None:
    thread = MlxThread()
    assert thread.call(compute) == RIGHT
    thread.close()


def in_a_pool() -> None:
    with streams.reused_streams() as take, ThreadPoolExecutor(3, initializer=take) as pool:
        assert list(pool.map(lambda _: compute(), range(9))) == [RIGHT] * 9


@counted
@pytest.mark.parametrize("work", [on_a_thread_of_its_own, in_a_pool])
def test_no_thread_of_the_system_is_left(work: Callable[[], None]) -> None:
    work()
    mx.clear_cache()  # makes threads for all streams that have none
    before = len(os.listdir(_TASKS))
    for _ in range(5):
        work()
        mx.clear_cache()
    assert len(os.listdir(_TASKS)) <= before + 2  # of a pool, not all threads may have been needed before


def test_threads_at_the_same_time_have_streams_of_their_own() -> None:
    with streams.reused_streams() as take:
        found: list[str] = []

        def begin() -> None:
            take()
            found.append(str(mx.default_stream(mx.cpu)))

        with ThreadPoolExecutor(2, initializer=begin) as pool:
            for future in [pool.submit(compute) for _ in range(20)]:
                assert future.result() == RIGHT
        assert len(set(found)) == len(found)


def test_a_stream_that_waits_for_ever_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_stuck", True)
    monkeypatch.setattr(mx, "synchronize", lambda *_: pytest.fail("this would hang"))
    kept: list[mx.Stream] = []
    monkeypatch.setattr(streams, "_free", kept)
    with ThreadPoolExecutor(1) as pool, streams.reused_streams() as take:
        pool.submit(take).result()
    assert kept == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system is not asked")
def test_a_program_waits_for_threads_that_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What MLX keeps for one is let go of behind Python's end of it, and needs the interpreter."""
    monkeypatch.setattr(streams, "_ending", [])
    there, asked = [True, True, False], list[str]()

    def exists(path: str) -> bool:
        asked.append(path)
        return there[len(asked) - 1]

    number = streams.on_own_thread(threading.get_native_id)
    while any(thread.native_id == number for thread in threading.enumerate()):
        time.sleep(0.001)
    monkeypatch.setattr(os.path, "exists", exists)
    streams._await_ends()
    assert asked[:3] == [f"/proc/self/task/{number}"] * 3
    asked.clear()
    monkeypatch.setattr(streams, "_ending", [(threading.get_native_id(), time.monotonic())])
    streams._await_ends()  # this one runs on
    assert not asked
