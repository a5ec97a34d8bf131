"""A thread that prepares steps stays off the processor on which they are computed."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import pytest

from runtime import host
from runtime.cpu import threads
from runtime.cpu.native import kernels
from runtime.cpu.threads import Threads

pytestmark = pytest.mark.skipif(
    kernels is None or sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="needs kernels on Linux and two processors",
)


def elsewhere(run: Callable[[], None]) -> None:
    """In a thread of its own, which may change where it runs."""
    with ThreadPoolExecutor(1) as one:
        one.submit(run).result()


def leave() -> int:
    """The processor that this thread was on and is kept off now."""
    return next(one for one in sorted(os.sched_getaffinity(0)) * 100 if kernels.keep_off(one))


def test_it_leaves_the_processor_it_is_on_and_may_come_back() -> None:
    def run() -> None:
        before = os.sched_getaffinity(0)
        left = leave()
        assert os.sched_getaffinity(0) == before - {left}
        assert not kernels.keep_off(left), "it is elsewhere"
        kernels.let_back()
        assert os.sched_getaffinity(0) == before

    elsewhere(run)


def test_kept_off_another_one_it_may_use_the_first_again() -> None:
    def run() -> None:
        before = os.sched_getaffinity(0)
        leave()
        second = leave()
        assert os.sched_getaffinity(0) == before - {second}
        kernels.let_back()

    elsewhere(run)


def test_what_was_set_in_the_meantime_stays() -> None:
    def run() -> None:
        left = leave()
        os.sched_setaffinity(0, {left})
        kernels.let_back()
        assert os.sched_getaffinity(0) == {left}
        assert not kernels.keep_off(left), "there is no other it may use"
        assert os.sched_getaffinity(0) == {left}

    elsewhere(run)


def test_a_thread_that_is_kept_off_one_counts_all_of_the_process() -> None:
    def run() -> None:
        leave()
        seen = host.activity()
        assert seen is not None
        assert (host.cores(), seen.processors) == counted

    before = host.activity()
    assert before is not None
    counted = host.cores(), before.processors
    elsewhere(run)


def test_steps_that_are_prepared_beside_the_device_are_prepared_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[int] = []

    class Watched:
        computes_on, let_back = staticmethod(lambda: 3), staticmethod(lambda: left.append(-1))
        keep_off, set_threads = left.append, staticmethod(lambda count: None)

    monkeypatch.setattr(threads, "_kernels", lambda: Watched)
    its = Threads(1)
    its.before_step(0.0)
    assert left == []
    its.before_step(0.0, beside=True)
    its.rest()
    assert left == [3, -1]


def test_a_job_says_where_it_was_computed() -> None:
    mx.eval(kernels.rms_norm(mx.ones((1, 64)), mx.ones((64,)), 1e-6))
    assert kernels.computes_on() in os.sched_getaffinity(0)
