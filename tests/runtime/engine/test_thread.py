"""The MLX thread: whatever goes wrong on it, nobody waits for an answer that does not come."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from runtime.engine.engine import Engine, Options
from runtime.engine.request import Request
from runtime.engine.thread import MlxThread, ThreadEnded
from runtime.sampling.params import SamplingParams
from tests.support.interrupting import interrupted
from tests.support.parity import Reference

T = TypeVar("T")
PATIENCE_S = 100  # a busy machine may let a thread wait long


class Boom(Exception):
    pass


class Worker:
    """`work` does what is in `errors`, one at a time; what it is told is noted."""

    def __init__(self, *, failed_raises: bool = False) -> None:
        self.errors: list[BaseException] = []
        self.failures: list[Exception] = []
        self.ends: list[BaseException | None] = []
        self.failed_raises = failed_raises
        self.thread = MlxThread()
        self.thread.serve(self.work, failed=self.failed, ended=self.ends.append)

    def work(self) -> bool:
        if self.errors:
            raise self.errors.pop()
        return False

    def failed(self, error: Exception) -> None:
        self.failures.append(error)
        if self.failed_raises:
            raise error

    def meets(self, error: BaseException) -> None:
        """The next `work` raises."""
        self.thread.post(lambda: self.errors.append(error), lambda error: None)


def within(function: Callable[[], T]) -> T:
    """Its result, or TimeoutError."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(function).result(PATIENCE_S)
    finally:
        pool.shutdown(wait=False)


def raising(error: BaseException) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


@pytest.mark.parametrize("error", [Boom("no"), SystemExit(3)], ids=["error", "exit"])
def test_an_error_of_a_call_is_the_callers(error: BaseException) -> None:
    worker = Worker()
    with pytest.raises(type(error)):
        within(lambda: worker.thread.call(raising(error)))
    assert within(lambda: worker.thread.call(lambda: 5)) == 5
    within(worker.thread.close)
    assert (worker.failures, worker.ends) == ([], [None])


def test_an_error_of_a_posted_closure_goes_to_who_posted_it() -> None:
    worker, told = Worker(), list[BaseException]()
    worker.thread.post(raising(Boom("no")), told.append)
    assert within(lambda: worker.thread.call(lambda: 5)) == 5
    assert [type(error) for error in told] == [Boom]
    within(worker.thread.close)


def test_an_error_of_the_work_is_set_right_and_the_thread_lives_on() -> None:
    worker = Worker()
    for _ in range(3):
        worker.meets(Boom("no"))
        assert within(lambda: worker.thread.call(lambda: 5)) == 5
    within(worker.thread.close)
    assert len(worker.failures) == 3
    assert worker.ends == [None]


@pytest.mark.parametrize("how", ["failed raises", "exit"])
def test_a_thread_that_cannot_go_on_refuses_what_waits_and_what_comes(how: str) -> None:
    worker, told = Worker(failed_raises=how == "failed raises"), list[BaseException]()
    reason = Boom("no") if worker.failed_raises else SystemExit(3)
    inside, gate = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        gate.wait(PATIENCE_S)
        worker.errors.append(reason)

    worker.thread.post(hold, told.append)
    assert inside.wait(PATIENCE_S)
    with ThreadPoolExecutor(1) as pool:
        worker.thread.post(lambda: None, told.append)  # into the inbox, while `hold` runs
        late = pool.submit(worker.thread.call, lambda: 5)
        gate.set()
        with pytest.raises(ThreadEnded) as waiting:
            late.result(PATIENCE_S)
    assert waiting.value.__cause__ is reason
    assert [type(error) for error in told] == [ThreadEnded]
    for attempt in (lambda: worker.thread.call(lambda: 5), lambda: worker.thread.post(hold, told.append)):
        with pytest.raises(ThreadEnded, match=repr(reason)[:4]):
            within(attempt)
    within(worker.thread.close)
    assert worker.ends == [reason]


def test_a_closed_thread_refuses_and_may_be_closed_again() -> None:
    worker = Worker()
    ran = list[int]()
    worker.thread.post(lambda: ran.append(1), lambda error: None)
    within(worker.thread.close)
    within(worker.thread.close)
    assert ran == [1]
    with pytest.raises(ThreadEnded, match="closed"):
        worker.thread.call(lambda: 5)


def test_a_call_from_the_thread_itself_is_refused() -> None:
    worker = Worker()
    with pytest.raises(RuntimeError, match="wait for itself"):
        within(lambda: worker.thread.call(lambda: worker.thread.call(lambda: 5)))
    within(worker.thread.close)


def test_an_interrupt_of_who_asks_stops_nobody_else() -> None:
    """In a Condition's own beginning one left its lock taken, for which the thread then waited for ever."""
    thread, at = MlxThread(), 0
    while interrupted(lambda: thread.call(lambda: 1), at):
        assert within(lambda: thread.call(lambda: 2)) == 2
        at += 1
    assert at > 5
    thread.close()


def test_an_interrupt_of_who_submits_leaves_nobody_behind(tmp_path: Path) -> None:
    """One that came when the request was posted had it answered for nobody, and counted wrong who waits."""
    engine = Engine(lambda: Reference("llama").load(tmp_path), Options(context_length=200))
    asked, at = Request((3, 4, 5), 190, SamplingParams(temperature=0)), 0
    while interrupted(lambda: engine.submit(asked), at):
        until = time.monotonic() + PATIENCE_S
        while (activity := engine.activity).waiting or activity.running:
            assert activity.waiting >= 0
            assert time.monotonic() < until
            time.sleep(0.001)
        at += 1
    engine.close()
