"""A stream may be left by any thread at any moment: nobody waits for ever, and what was read has no gaps."""

import gc
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from runtime.engine.request import Delta, Finish, Usage
from runtime.engine.stream import Stream

PATIENCE_S = 20


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def run_engine(stream: Stream, count: int, end: Finish | BaseException, pause: Callable[[], None]) -> None:
    """The engine's side of one request: tokens 0, 1, 2, ... until somebody leaves."""
    for token in range(count):
        if stream.cancelled:
            stream.put(Finish("cancelled", Usage(generated_tokens=token)))
            return
        stream.put(Delta((token,)))
        pause()
    stream.put(end)


def read_all(stream: Stream) -> list[int]:
    got: list[int] = []
    while (delta := stream.read()) is not None:
        got.extend(delta.ids)
    return got


def nap(rng: random.Random) -> Callable[[], None]:
    """Mostly nothing, sometimes a change of threads, sometimes a short sleep."""
    return lambda: time.sleep(rng.choice((0, 0, 1e-5, 1e-4))) if rng.random() < 0.3 else None


def test_any_thread_may_close_at_any_moment(pool: ThreadPoolExecutor) -> None:
    for seed in range(1000):
        rng = random.Random(seed)
        stream, count = Stream(), rng.choice((0, 1, 5, 30))
        end = Finish("length", Usage(generated_tokens=count)) if seed % 3 else RuntimeError("it died")
        jobs = [pool.submit(run_engine, stream, count, end, nap(rng))]
        reading = pool.submit(read_all, stream)

        def leave(wait: float, stream: Stream = stream) -> Finish:
            time.sleep(wait)
            return stream.close()

        jobs += [pool.submit(leave, rng.choice((0, 1e-5, 2e-4, 1e-3))) for _ in range(rng.choice((1, 2, 3)))]
        for job in jobs:
            job.result(PATIENCE_S)
        if reading.exception(PATIENCE_S) is not None:
            assert reading.exception() is end
            continue
        got = reading.result()
        assert got == list(range(len(got)))
        assert stream.ended
        if stream.finish is not None and stream.finish.reason == "length":
            assert got == list(range(count))


def test_what_was_not_read_makes_an_answer_cancelled() -> None:
    stream = Stream()
    run_engine(stream, 3, Finish("length"), lambda: None)
    assert stream.read() == Delta((0,))
    assert stream.close().reason == "cancelled"
    assert stream.read() is None
    assert stream.close().reason == "cancelled"


def test_closing_what_was_read_to_its_end_changes_nothing() -> None:
    stream = Stream()
    run_engine(stream, 3, Finish("stop"), lambda: None)
    assert read_all(stream) == [0, 1, 2]
    assert stream.close().reason == "stop"
    assert not stream.cancelled


def test_a_failure_is_raised_each_time_but_not_to_one_who_has_left() -> None:
    broken, left = Stream(), Stream()
    for stream in (broken, left):
        run_engine(stream, 1, RuntimeError("it died"), lambda: None)
    assert broken.read() is not None
    for _ in range(2):
        with pytest.raises(RuntimeError, match="it died"):
            broken.read()
    assert left.close().reason == "cancelled"
    assert left.read() is None


def test_leaving_a_loop_cancels_and_does_not_wait() -> None:
    stream = Stream()
    stream.put(Delta((0,)))
    for _ in stream:
        break
    gc.collect()
    assert stream.cancelled
    assert not stream.ended


def test_a_loop_that_is_collected_on_the_engines_thread_does_not_wait_for_itself(
    pool: ThreadPoolExecutor,
) -> None:
    stream = Stream()
    stream.put(Delta((0,)))
    ring: list[object] = [iter(stream)]
    ring.append(ring)
    next(ring[0])  # pyright: ignore[reportCallIssue, reportArgumentType]
    ring = []
    pool.submit(gc.collect).result(PATIENCE_S)
    assert stream.cancelled


def test_many_may_wait_for_one_end(pool: ThreadPoolExecutor) -> None:
    stream = Stream()
    waiting = [pool.submit(stream.close) for _ in range(6)]
    time.sleep(0.01)
    stream.put(Finish("cancelled"))
    assert {job.result(PATIENCE_S).reason for job in waiting} == {"cancelled"}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals arrive on Unix alone")
def test_an_interrupt_of_a_waiting_reader_keeps_nobody_waiting(pool: ThreadPoolExecutor) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for seed in range(50):
            rng, stream = random.Random(seed), Stream()
            engine = pool.submit(run_engine, stream, 10_000, Finish("length"), nap(rng))
            closing = pool.submit(stream.close) if seed % 5 == 0 else None
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 3e-3))  # may strike at once
                read_all(stream)
                time.sleep(PATIENCE_S)  # the interrupt is still to come
            except KeyboardInterrupt:
                stream.cancel()  # it may have struck outside of `read`, in our own loop
            engine.result(PATIENCE_S)
            assert stream.close().reason in ("cancelled", "length")
            if closing is not None:
                closing.result(PATIENCE_S)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_loop_that_looked_while_another_thread_took_the_end_is_told_again() -> None:
    """Else it would wait for ever: the engine tells it once of an end."""
    stream, seen = Stream(), list[bool]()
    stream.listen(lambda: seen.append(stream.has_news))
    taken = stream._events.get

    class Looking:
        """A queue out of which a thread takes while the loop looks into it."""

        put, empty = stream._events.put, stream._events.empty

        def get(self, *wait: bool) -> object:
            event = taken(*wait)
            seen.append(stream.has_news)
            return event

    stream.put(Finish("length"))
    stream._events = Looking()  # pyright: ignore[reportAttributeAccessIssue]
    stream.close()
    assert seen == [False, True]
    assert stream.take() == []
    assert stream.ended
