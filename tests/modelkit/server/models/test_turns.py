"""Turns at the models of a pool: who waits, who goes first, and who is sent away."""

import asyncio
import random
from typing import Any

import pytest

from modelkit.errors import Busy
from modelkit.server.models.pool import Lease
from tests.support.pool import (
    FakePackages,
    nothing_is_left,
    on_a_loop,
    pool_of,
    until,
    use,
)


@on_a_loop
async def test_too_many_who_wait_are_refused_with_a_time() -> None:
    async with pool_of(FakePackages({"a": 10, "b": 10}), waiting=2, waiting_in_all=3) as (pool, _):
        held = [pool.acquire("a") for _ in range(5)]  # one place, and four that wait in the engine
        for one in held:
            await one.__aenter__()
        lines = [asyncio.ensure_future(use(pool, "a")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="2 requests wait for this model") as said:
            await use(pool, "a")
        assert (said.value.waiting, said.value.retry_after_s >= 1) == (2, True)
        async with pool.acquire("a", turn=False) as counting:
            assert counting.model.alive
        await use(pool, "b")
        for one in held:
            await one.__aexit__(None, None, None)
        await asyncio.gather(*lines)
        nothing_is_left(pool)


@on_a_loop
async def test_urgent_requests_go_first_but_nobody_waits_for_ever() -> None:
    async with pool_of(FakePackages({"a": 10})) as (pool, clock):
        held = [pool.acquire("a") for _ in range(5)]
        for one in held:
            await one.__aenter__()
        order: list[str] = []

        async def ask(label: str, priority: Any) -> None:
            async with pool.acquire("a", priority=priority):
                order.append(label)
                await asyncio.sleep(0)

        asked = [("back", "background"), ("old", "default"), ("usual", "default"), ("now", "interactive")]
        waiting: list[asyncio.Future[None]] = []
        for label, priority in asked:
            waiting.append(asyncio.ensure_future(ask(label, priority)))
            await asyncio.sleep(0)
            clock.now_s += 100 if label == "back" else 1
        await held[0].__aexit__(None, None, None)
        await asyncio.gather(*waiting)
        for one in held[1:]:
            await one.__aexit__(None, None, None)
        assert order == ["now", "back", "old", "usual"]


@on_a_loop
async def test_a_hundred_who_leave_at_any_moment_leave_nothing() -> None:
    packages = FakePackages({"a": 40, "b": 40, "c": 40})
    random.seed(5)
    async with pool_of(packages, memory_bytes=100) as (pool, _):
        waiting: list[asyncio.Future[Lease]] = []
        for _ in range(100):
            waiting.append(asyncio.ensure_future(use(pool, random.choice("abc"))))
            if random.random() < 0.5:
                await asyncio.sleep(random.random() / 200)
            random.choice(waiting).cancel()
            if random.random() < 0.2:
                packages.reads.set() if random.random() < 0.7 else packages.reads.clear()
        for one in waiting:
            one.cancel()
        packages.reads.set()
        await asyncio.wait(waiting)
        await until(lambda: all(one.state == "ready" for one in pool.shown()))
        nothing_is_left(pool)
        assert sum(one.size_bytes for one in pool.shown()) <= 100
        assert await use(pool, "a")
