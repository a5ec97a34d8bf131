"""A thread that prepares steps stays off the processor on which they are computed."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import pytest

from runtime import host, streams
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
        seen = host.processor_times()
        assert seen is not None
        assert (host.cores(), seen.processors) == counted

    before = host.processor_times()
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


def test_a_thread_stays_where_it_is_told_to_with_those_that_compute_for_it() -> None:
    def computes_on() -> set[int]:
        seen = set[int]()
        for _ in range(20):
            mx.eval(kernels.rms_norm(mx.ones((1, 64)), mx.ones((64,)), 1e-6))
            seen.add(kernels.computes_on())
        return seen

    def run() -> None:
        before = os.sched_getaffinity(0)
        for one in sorted(before):
            kernels.stay_on([one, 10**6])
            assert os.sched_getaffinity(0) == {one}
            assert not kernels.keep_off(one), "there is no other it may use"
            assert computes_on() == {one}
        kernels.stay_on([10**6])
        assert len(os.sched_getaffinity(0)) == 1, "none of these is there"
        kernels.stay_on([])
        assert os.sched_getaffinity(0) == before

    streams.on_own_thread(run)


def test_helpers_are_where_the_thread_is_that_they_help() -> None:
    """Those that are there and those that come; and anywhere again after it."""
    done = subprocess.run([sys.executable, "-c", HELPED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


HELPED = """
import os
import mlx.core as mx
from runtime.cpu.native import kernels

def where(threads):
    kernels.set_threads(threads)
    mx.eval(kernels.rms_norm(mx.ones((4096, 512)), mx.ones((512,)), 1e-6))
    tasks = [int(one) for one in os.listdir("/proc/self/task")]
    helpers = [one for one in tasks if open(f"/proc/self/task/{one}/comm").read() == "modelkit\\n"]
    assert len(helpers) == threads - 1
    return {frozenset(os.sched_getaffinity(one)) for one in helpers}

everywhere, (first, *_) = frozenset(os.sched_getaffinity(0)), sorted(os.sched_getaffinity(0))
assert where(2) == {everywhere}
kernels.stay_on([first])
mx.synchronize()
assert where(2) == where(3) == {frozenset({first})}
kernels.stay_on([])
mx.synchronize()
assert where(3) == {everywhere}
"""


def test_a_job_says_where_it_was_computed() -> None:
    mx.eval(kernels.rms_norm(mx.ones((1, 64)), mx.ones((64,)), 1e-6))
    assert kernels.computes_on() in os.sched_getaffinity(0)
