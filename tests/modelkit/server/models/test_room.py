"""Room in the pool: who gives way to whom, and what is lent to those in use."""

import asyncio
from types import SimpleNamespace

import pytest

from modelkit.errors import Busy, LoadError
from modelkit.memory import Memory
from modelkit.server import serve
from modelkit.server.models.model_source import FoundModel
from modelkit.server.models.pool_entry import PoolEntry
from modelkit.server.models.turns import InAll, Turns
from tests.support.pool import (
    FakePackages,
    names,
    on_a_loop,
    pool_of,
    states,
    until,
    use,
)


@on_a_loop
@pytest.mark.parametrize(("limit", "conversations"), [(1000, 80), (70, 25), (20, 10)])
async def test_what_reading_a_prompt_takes_is_reserved_once(limit: int, conversations: int) -> None:
    """Beside eight conversations, or as much for them as there is, or one."""
    standing = PoolEntry(1, FoundModel("a", "sha256:a"), Turns(1, InAll(1)), 60, 0)
    memory = Memory(40, 0, 10, 0, likely_bytes=10, likely_step_bytes=5, step_bytes=9, rows=8)
    standing.weigh(memory, limit)
    assert standing.fixed_bytes == 40 + conversations + 5
    assert standing.shown(0).size_bytes == standing.fixed_bytes


@on_a_loop
async def test_idle_models_make_room_and_busy_ones_do_not() -> None:
    packages = FakePackages({"a": 40, "b": 40, "c": 50})
    async with pool_of(packages, memory_bytes=100, patience_s=60) as (pool, clock):
        await use(pool, "a")
        clock.now_s += 1
        await use(pool, "b")
        async with pool.acquire("a"):
            clock.now_s += 1
            await use(pool, "c")
            assert sorted(names(pool)) == ["a", "c"]
            async with pool.acquire("c"):
                late = asyncio.ensure_future(use(pool, "b"))
                await until(lambda: states(pool).get("b") == "waiting")
                clock.now_s += 60
                pool.settle()
                with pytest.raises(
                    Busy, match=r"no room for b.*c \(50 B, in use\), a \(40 B, in use\)"
                ) as said:
                    await late
                assert said.value.retry_after_s >= 1
                again = asyncio.ensure_future(use(pool, "b"))
                await until(lambda: states(pool).get("b") == "waiting")
            await again
        assert sorted(names(pool)) == ["a", "b"]
        clock.now_s += 400
        await use(pool, "c", 0)
        assert pool.tally.evictions == {"b": 1, "c": 1}  # not those whose time was over
        left = pool.tally.departures
        assert {name: count for (name, why), count in left.items() if why == "room"} == {"b": 1, "c": 1}
        assert {why for _, why in left} == {"room", "idle"}
        assert pool.tally.failures == {("b", "no_room"): 1}


@on_a_loop
async def test_earlier_prompts_are_kept_shorter_before_anybody_leaves() -> None:
    packages = FakePackages({"a": 40, "b": 40}, prefixes=60)
    async with pool_of(packages, memory_bytes=100) as (pool, _):
        await use(pool, "a")
        assert pool.shown()[0].prefix_limit_bytes == 60
        packages.loaded[0].held = 15
        async with pool.acquire("a", turn=False):
            held = asyncio.ensure_future(use(pool, "b"))
            await held
        assert sorted(names(pool)) == ["a", "b"]
        assert packages.loaded[0].limits[0] == 10
        assert packages.loaded[1].limits[0] <= 10
        assert sum(one.size_bytes for one in pool.shown()) <= 100
        packages.loaded[0].held = 0
        await use(pool, "a")
        pool.stop("b")
        await until(lambda: names(pool) == ["a"] and pool.shown()[0].prefix_limit_bytes == 60)


@on_a_loop
async def test_memory_that_nobody_was_promised_is_lent_to_those_in_use() -> None:
    packages = FakePackages({"a": 20, "b": 20})
    async with pool_of(packages, memory_bytes=100) as (pool, _):
        async with pool.acquire("a"):
            first = packages.loaded[0]
            assert first.lent[-1] == 80
            first.layers = 30
            async with pool.acquire("b"):
                assert (first.lent[-1], packages.loaded[1].lent[-1]) == (45, 15)
        await use(pool, "b")
        assert first.lent[-1] == 30  # what its buffers take; it has to give none of it back


@on_a_loop
async def test_a_conversation_that_fills_the_context_has_room_beside_earlier_prompts() -> None:
    packages = FakePackages({"a": 20, "b": 10}, prefixes=1000, conversation=1, longest=15)
    async with pool_of(packages, memory_bytes=100) as (pool, _):
        await use(pool, "a")
        await use(pool, "b")
        async with pool.acquire("a"):
            first = packages.loaded[0]
            await until(lambda: first.lent[-1] >= 15)
            assert sum(one.prefix_limit_bytes for one in pool.shown()) <= 100 - 20 - 10 - 2 * 15


@on_a_loop
async def test_a_model_that_can_never_fit_is_refused_at_once() -> None:
    async with pool_of(FakePackages({"a": 200}), memory_bytes=100) as (pool, _):
        with pytest.raises(LoadError, match="takes 200 B, and all models together may take 100 B") as said:
            await use(pool, "a")
        assert "smaller model" in (said.value.hint or "")
        assert pool.tally.failures == {("a", "too_large"): 1}
        assert pool.shown() == []


@on_a_loop
async def test_room_is_kept_for_as_many_conversations_as_are_answered_at_once() -> None:
    for rows, reserved in ((1, 10), (3, 30), (8, 80), (64, 80)):
        packages = FakePackages({"a": 10}, rows=rows, conversation=10)
        async with pool_of(packages, memory_bytes=1000) as (pool, _):
            await use(pool, "a")
            assert pool.shown()[0].context_bytes == reserved


def test_the_room_of_ranks_is_that_of_all_their_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model counts with what all of them hold, and may be for none of them alone."""
    monkeypatch.setattr(serve, "current_group", lambda: SimpleNamespace(free_bytes=10**15))
    assert serve.room_here() == 9 * 10**14
