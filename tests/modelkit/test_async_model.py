"""A model on an event loop: the same answers, and who leaves cancels."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit import AsyncModel
from modelkit.errors import RequestError
from runtime.embedding import Reading
from tests.support.tiny import TEMPLATE, write_model

TALK = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("async") / "model", template=TEMPLATE)


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[modelkit.Model]:
    with modelkit.load(folder) as loaded:
        yield loaded


def test_answers_are_those_of_the_model(model: modelkit.Model) -> None:
    async def ask() -> tuple[modelkit.Generation, ...]:
        both = AsyncModel(model)
        whole = await both.chat(TALK, seed=1, num_predict=20)
        stream = await both.chat(TALK, seed=1, num_predict=20, stream=True)
        assert "".join([text async for text in stream]) == whole.text
        return whole, stream.result, await both.generate("Hi", seed=1, num_predict=20)

    for answer in asyncio.run(ask()):
        assert answer.ids == model.chat(TALK, seed=1, num_predict=20).ids


def test_many_share_a_loop(model: modelkit.Model) -> None:
    async def ask() -> list[modelkit.Generation]:
        both = AsyncModel(model)
        return await asyncio.gather(*(both.generate("Hi", seed=seed, num_predict=20) for seed in range(12)))

    answers = asyncio.run(ask())
    assert [one.ids for one in answers] == [
        model.generate("Hi", seed=seed, num_predict=20).ids for seed in range(12)
    ]


def test_a_task_that_is_cancelled_cancels_its_answer(
    model: modelkit.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = model._running.engine  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
    takes, begun, left = engine._loop._step, threading.Event(), threading.Event()  # pyright: ignore[reportPrivateUsage]
    steps: list[int] = []

    def step(prefill: int) -> None:
        """The answer stands after its first step until the task has gone."""
        takes(prefill)
        steps.append(prefill)
        begun.set()
        assert left.wait(60)

    async def leave() -> None:
        asking = asyncio.create_task(AsyncModel(model).generate("Hi", num_predict=200, seed=1))
        assert await asyncio.to_thread(begun.wait, 60)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    monkeypatch.setattr(engine._loop, "_step", step)
    asyncio.run(leave())
    left.set()
    until = time.monotonic() + 60
    while engine.call(lambda _model: len(engine._loop._places.rows)):  # pyright: ignore[reportPrivateUsage]
        assert time.monotonic() < until, "the row of a cancelled task goes on"
    assert len(steps) == 1


def test_a_task_that_is_cancelled_ends_its_embeddings(
    model: modelkit.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, begun, left, ended = list[int](), threading.Event(), threading.Event(), threading.Event()
    piece = Reading.read

    def held(reading: Reading, tokens: int) -> int:
        read.append(tokens)
        begun.set()
        assert left.wait(60)
        return piece(reading, tokens)

    def embed(*given: Any, **options: Any) -> object:
        try:
            return modelkit.Model.embed(model, *given, **options)
        finally:
            ended.set()

    async def leave() -> None:
        asking = asyncio.create_task(AsyncModel(model).embed(["a" * 200] * 6))
        assert await asyncio.to_thread(begun.wait, 60)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    monkeypatch.setattr(Reading, "read", held)
    monkeypatch.setattr(model, "embed", embed)
    asyncio.run(leave())
    left.set()
    assert ended.wait(60)
    assert len(read) == 1


def test_it_loads_and_closes(folder: Path) -> None:
    async def whole_life() -> str:
        async with await AsyncModel.load(folder, num_ctx=64) as both:
            assert both.model.context_length == 64
            answer = await both.generate("Hi", num_predict=3)
            with pytest.raises(RequestError, match="messages"):
                await both.chat(5)  # pyright: ignore
        assert "closed" in repr(both)
        return answer.text

    assert asyncio.run(whole_life())
