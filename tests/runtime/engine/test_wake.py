"""Readers on an event loop: woken once per step, and never waiting; and how many requests may wait."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.engine.engine import Engine
from runtime.engine.notifier import INTERVAL_S, MOST_INTERVALS, READERS, Notifier
from runtime.engine.request import Delta, Finish, Request
from runtime.engine.steps import Steps
from runtime.engine.stream import Stream, WakeFailed
from runtime.errors import QueueFull
from tests.support.engines import GREEDY, answer, ids_of, prompt, start
from tests.support.standing import standing


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    running = start(tmp_path_factory.mktemp("model"))
    yield running
    running.close()


def request(seed: int, count: int = 24) -> Request:
    return Request(prompt(seed, 20), count, GREEDY)


async def follow(engine: Engine, one: Request) -> list[int]:
    loop, news, got = asyncio.get_running_loop(), asyncio.Event(), list[int]()
    stream = engine.submit(one, lambda: loop.call_soon_threadsafe(news.set))
    while not stream.ended:
        await news.wait()
        news.clear()
        got += ids_of(stream.take())
    return got


def test_a_loop_follows_several_streams(engine: Engine) -> None:
    requests = [request(n, 5 + 6 * n) for n in range(6)]
    alone = [answer(engine, one) for one in requests]

    async def all_of_them() -> list[list[int]]:
        return await asyncio.gather(*(follow(engine, one) for one in requests))

    assert asyncio.run(all_of_them()) == alone


def test_one_wake_for_all_streams_is_called_once_per_step_and_when_one_ends(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, woken, threads = [0], list[int](), set[str]()
    run = Steps.run

    def counted(self: Steps, prefill: int) -> None:
        steps[0] += 1
        run(self, prefill)

    monkeypatch.setattr(Steps, "run", counted)

    def wake() -> None:
        woken.append(steps[0])
        threads.add(threading.current_thread().name)

    streams = [engine.submit(request(n), wake) for n in range(4)]
    got = [sum(len(delta.ids) for delta in stream) for stream in streams]
    engine.call(lambda _model: None)
    assert got == [24] * 4
    assert len(woken) <= steps[0] + len(streams) < sum(got)
    assert max(map(woken.count, woken)) <= 2
    assert threads == {"modelkit-mlx"}


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def notifier(clock: Clock) -> Notifier:
    return Notifier(clock)


def ids(stream: Stream) -> list[tuple[int, ...]]:
    return [delta.ids for delta in stream.take()]


def begun(notifier: Notifier) -> Stream:
    """A stream whose first token has just been taken."""
    stream = Stream(notifier)
    stream.put(Delta((1,)))
    notifier.notify()
    assert ids(stream) == [(1,)]
    return stream


def test_the_first_token_waits_until_the_next_step_is_on_its_way(notifier: Notifier) -> None:
    begun(notifier)
    stream = Stream(notifier)
    stream.put(Delta((2,)))
    notifier.step_over(more=True)
    assert not stream.has_news
    notifier.device_waited_for()
    assert ids(stream) == [(2,)]


def test_tokens_of_short_steps_come_together(notifier: Notifier, clock: Clock) -> None:
    stream, got = begun(notifier), list[list[tuple[int, ...]]]()
    for n in range(2, 12):
        clock.now_s += INTERVAL_S / 4.5
        stream.put(Delta((n,)))
        notifier.step_over(more=True)
        notifier.device_waited_for()
        got.append(ids(stream))
    assert [len(some) for some in got] == [0, 0, 0, 0, 5, 0, 0, 0, 0, 5]


FEW, MORE, MANY = (1, 1.0), (READERS * 3 // 2, 1.5), (99, MOST_INTERVALS)


@pytest.mark.parametrize(("readers", "intervals"), [FEW, (READERS, 1.0), MORE, MANY])
def test_many_readers_are_told_less_often(
    notifier: Notifier, clock: Clock, readers: int, intervals: float
) -> None:
    streams = [begun(notifier) for _ in range(readers)]
    for stream in streams:
        stream.put(Delta((2,)))
    notifier.step_over(more=True)
    clock.now_s += 0.99 * intervals * INTERVAL_S
    notifier.device_waited_for()
    assert not any(stream.has_news for stream in streams)
    clock.now_s += 0.02 * intervals * INTERVAL_S
    notifier.device_waited_for()
    assert all(ids(stream) == [(2,)] for stream in streams)


def test_tokens_of_long_steps_come_one_by_one(notifier: Notifier, clock: Clock) -> None:
    stream = begun(notifier)
    for n in range(2, 6):
        clock.now_s += 1.01 * INTERVAL_S
        stream.put(Delta((n,)))
        notifier.step_over(more=True)
        notifier.device_waited_for()
        assert ids(stream) == [(n,)]


def test_nothing_waits_for_a_step_that_reads_a_prompt(notifier: Notifier) -> None:
    stream = begun(notifier)
    stream.put(Delta((2,)))
    notifier.step_over(more=True)
    notifier.hurry()
    notifier.device_waited_for()
    assert ids(stream) == [(2,)]


def test_a_step_that_never_waits_holds_nothing_back_for_long(notifier: Notifier, clock: Clock) -> None:
    stream = begun(notifier)
    stream.put(Delta((2,)))
    notifier.step_over(more=True)
    clock.now_s += 1.01 * INTERVAL_S
    notifier.step_over(more=True)
    assert ids(stream) == [(2,)]


def test_where_no_step_follows_nothing_waits(notifier: Notifier) -> None:
    stream = begun(notifier)
    stream.put(Delta((2,)))
    notifier.step_over(more=False)
    assert ids(stream) == [(2,)]


def test_the_end_of_a_stream_takes_its_tokens_with_it(notifier: Notifier) -> None:
    woken = list[int]()
    stream, other = Stream(notifier, lambda: woken.append(1)), Stream(notifier)
    other.put(Delta((4,)))
    stream.put(Delta((5,)))
    stream.put(Finish("stop"))
    assert [delta.ids for delta in stream.take()] == [(5,)]
    assert not woken
    notifier.step_over(more=True)
    assert woken == [1]
    assert other.has_news


def test_a_failure_behind_tokens_is_told_at_the_next_look() -> None:
    """Whoever looks for the end before looks again is woken once more."""
    woken = list[int]()
    stream = Stream()
    stream.listen(lambda: woken.append(1))
    stream.put(Delta((5,)))
    stream.put(ValueError("the grammar cannot go on"))
    woken.clear()
    assert [delta.ids for delta in stream.take()] == [(5,)]
    assert (stream.ended, woken) == (False, [1])
    with pytest.raises(ValueError, match="cannot go on"):
        stream.take()
    assert stream.ended


def test_what_is_there_is_taken_without_waiting(engine: Engine) -> None:
    held = threading.Event()
    blocked = threading.Thread(target=lambda: engine.call(lambda _model: held.wait(100)))
    blocked.start()
    stream = engine.submit(request(1))
    assert stream.take() == []
    assert not stream.ended
    held.set()
    blocked.join()
    rest = ids_of(stream)
    assert rest == answer(engine, request(1))
    assert stream.take() == []
    assert stream.ended


def test_one_who_has_left_is_told_of_the_end(engine: Engine) -> None:
    done = threading.Event()
    with standing(engine):
        stream = engine.submit(request(2, 200))
        stream.listen(done.set)
        stream.cancel()
    while not stream.ended:
        assert done.wait(100)
        done.clear()
        assert stream.take() == []
    assert stream.finish is not None
    assert stream.finish.reason == "cancelled"


def fails() -> None:
    raise RuntimeError("the loop is closed")


def exits() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("wake", [fails, exits])
def test_a_wake_that_fails_ends_its_streams_and_nothing_else(
    engine: Engine, wake: Callable[[], None]
) -> None:
    expected = answer(engine, request(3, 100))
    other, deaf = engine.submit(request(3, 100)), [engine.submit(request(n, 200), wake) for n in range(2)]
    assert ids_of(other) == expected
    for stream in deaf:
        with pytest.raises(WakeFailed) as caught:
            list(stream)
        assert isinstance(caught.value.__cause__, RuntimeError | SystemExit)
        assert stream.cancelled
    assert answer(engine, request(3, 100)) == expected


def test_failures_come_after_what_came_before_them() -> None:
    stream = Stream()
    stream.put(RuntimeError("it died"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="it died"):
            stream.take()


def test_the_queue_has_a_limit(tmp_path: Path) -> None:
    engine = start(tmp_path, max_rows=1, max_waiting=2)
    wanted = answer(engine, request(5))
    running = engine.submit(request(4, 200))
    assert running.read() is not None  # it has a place
    waiting = [engine.submit(request(5)) for _ in range(2)]
    for _ in range(3):
        with pytest.raises(QueueFull, match="2 requests wait"):
            engine.submit(request(6))
    waiting[0].cancel()
    engine.call(lambda _model: None)
    engine.call(lambda _model: None)  # a step has been in between
    waiting[0] = engine.submit(request(5))
    with pytest.raises(QueueFull):
        engine.submit(request(6))
    running.close()
    assert [ids_of(stream) for stream in waiting] == [wanted] * 2
    for _ in range(5):
        assert answer(engine, request(5)) == wanted  # every one of them has left the queue
    engine.close()


def test_a_request_that_could_not_be_queued_does_not_count(tmp_path: Path) -> None:
    engine = start(tmp_path, max_waiting=1)
    engine.close()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="closed"):
            engine.submit(request(1))
