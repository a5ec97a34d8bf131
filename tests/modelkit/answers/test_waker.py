"""Readers on an event loop are told of a step with one call, however many they are."""

import asyncio
import threading
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.answers import waker
from modelkit.model import Model
from runtime.engine.notifier import Notifier
from runtime.engine.request import Delta, Finish, Usage
from runtime.engine.stream import Stream
from tests.support.tiny import write_model

ROWS, TOKENS = 6, 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = write_model(tmp_path_factory.mktemp("model"))
    with modelkit.load(folder, home=tmp_path_factory.mktemp("home")) as loaded:
        yield loaded


async def _read(model: Model, row: int) -> str:
    options: Any = {"raw": True, "seed": row, "num_predict": TOKENS, "draft_num_predict": 0, "temperature": 1}
    stream = model.generate(f"row {row}", stream=True, **options)
    return "".join([piece async for piece in stream])


def test_streams_of_one_model_share_a_wake(model: Model) -> None:
    async def read_all() -> tuple[list[str], int]:
        loop, calls = asyncio.get_running_loop(), 0
        schedule = loop.call_soon_threadsafe

        def counted(*arguments: Any, **keywords: Any) -> Any:
            nonlocal calls
            calls += 1
            return schedule(*arguments, **keywords)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        return list(await asyncio.gather(*(_read(model, row) for row in range(ROWS)))), calls

    texts, calls = asyncio.run(read_all())
    assert texts == [asyncio.run(_read(model, row)) for row in range(ROWS)]
    # One for each step, and a few steps more for prompts that are read one after the other.
    assert calls <= TOKENS + 3 * ROWS
    assert not waker._wakers


def test_who_follows_several_is_called_once_for_all_that_came(model: Model) -> None:
    async def follow() -> list[int]:
        options: Any = {"raw": True, "num_predict": TOKENS, "temperature": 1, "stream": True}
        held = threading.Event()  # else the first may be at its end when the last begins
        engine: Any = model._running.engine  # type: ignore[union-attr]
        engine._thread.post(lambda: held.wait(100), lambda error: None)
        streams = [model.generate(f"row {row}", seed=row, **options) for row in range(ROWS)]
        held.set()
        told, over = list[int](), asyncio.Event()

        def take() -> None:
            while told and not all(one.source.has_news or one.ended for one in streams):
                time.sleep(0.001)  # whoever of the two threads is quicker
            told.append(sum(bool(one.take()) for one in streams))
            if all(one.ended for one in streams):
                over.set()

        with waker.following(take, *(one.source for one in streams)):
            take()
            await asyncio.wait_for(over.wait(), 100)
        return told

    told = asyncio.run(follow())
    assert max(told) == ROWS  # all of them had something, and it was called for them together
    assert told.count(0) <= 2  # before anything came, and for ends without a token
    assert not waker._wakers


def test_readers_of_two_loops_are_told_each(model: Model) -> None:
    async def both() -> list[str]:
        there = asyncio.to_thread(lambda: asyncio.run(_read(model, 1)))
        return list(await asyncio.gather(_read(model, 1), there))

    here, there = asyncio.run(both())
    assert here == there
    assert not waker._wakers


@pytest.mark.parametrize("way", ["plain", "events", "batches"])
def test_a_loop_behind_one_that_was_left_comes_to_its_end(model: Model, way: str) -> None:
    """The first gives up its place when the second has begun, and ends the answer for both."""

    async def read() -> str:
        stream = model.generate("Once", raw=True, num_predict=200, stream=True)
        begun: dict[str, Any] = {"plain": lambda: stream, "events": stream.events, "batches": stream.batches}
        async for _ in begun[way]():
            break
        async with asyncio.timeout(100):
            async for _ in begun[way]():
                pass
        return stream.result.reason

    assert asyncio.run(read()) == "cancelled"
    assert not waker._wakers


@pytest.mark.parametrize("way", ["plain", "events"])
def test_a_loop_that_is_closed_has_left(model: Model, way: str) -> None:
    """The answer ran on until the event loop got round to what the closed one had been reading."""

    async def read() -> tuple[bool, str]:
        stream = model.generate("Once", raw=True, num_predict=200, stream=True)
        parts: Any = (stream if way == "plain" else stream.events()).__aiter__()
        async with aclosing(parts):
            await anext(parts)
        return stream.source.cancelled, stream.result.reason

    assert asyncio.run(read()) == (True, "cancelled")


def test_two_loops_over_one_answer_share_it_and_end(model: Model) -> None:
    """The first waited for ever, as only the second was told of what came."""

    async def read() -> tuple[list[str], str]:
        stream = model.generate("Once", raw=True, num_predict=60, seed=3, stream=True)
        parts = list[str]()

        async def follow() -> None:
            parts.extend([piece async for piece in stream])

        async with asyncio.timeout(100):
            await asyncio.gather(follow(), follow(), follow())
        return parts, stream.result.text

    parts, text = asyncio.run(read())
    assert sorted("".join(parts)) == sorted(text)
    assert not waker._wakers


def test_who_has_left_with_a_loop_is_told_what_it_has_cost() -> None:
    """A step was on its way; what it brings is rung for when the loop is closed."""
    stream = Stream(notifier := Notifier())

    async def leave() -> None:
        with waker.listening(stream):
            stream.cancel()

    asyncio.run(leave())
    stream.put(Delta((5,)))
    notifier.notify()
    stream.put(Finish("cancelled", Usage(prompt_tokens=3)))
    assert stream.close().usage.prompt_tokens == 3
