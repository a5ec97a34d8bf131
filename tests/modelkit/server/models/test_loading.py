"""Loads of the pool: who shares one, when one ends early, and what is left of it."""

import asyncio
import threading

import pytest

from modelkit.errors import LoadError, ModelClosed, ModelNotFound
from tests.support.pool import (
    FakePackages,
    names,
    nothing_is_left,
    on_a_loop,
    pool_of,
    states,
    until,
    use,
)


@on_a_loop
async def test_all_who_wait_share_one_load() -> None:
    packages = FakePackages({"a": 10})
    async with pool_of(packages) as (pool, _):
        packages.reads.clear()
        waiting = [asyncio.ensure_future(use(pool, name)) for name in ("a", "A", "a")]
        await until(lambda: packages.began)
        packages.reads.set()
        leases = await asyncio.gather(*waiting)
        assert len({id(lease.model) for lease in leases}) == 1
        assert packages.began == ["a"]
        assert leases[0].digest == "sha256:a"


@on_a_loop
async def test_loading_one_stops_nobody_who_uses_another() -> None:
    packages = FakePackages({"a": 10, "b": 10, "c": 10})
    async with pool_of(packages) as (pool, _), pool.acquire("a"):
        packages.reads.clear()
        loading = [asyncio.ensure_future(use(pool, name)) for name in "bc"]
        await until(lambda: len(packages.began) == 3)
        await use(pool, "a")
        assert states(pool) == {"a": "ready", "b": "loading", "c": "loading"}
        packages.reads.set()
        await asyncio.gather(*loading)


@on_a_loop
async def test_a_load_that_fails_leaves_nothing() -> None:
    packages = FakePackages({"a": 10}, fails={"a": LoadError("its weights are broken")})
    async with pool_of(packages) as (pool, _):
        for _ in range(2):
            with pytest.raises(LoadError, match="its weights are broken"):
                await use(pool, "a")
        assert pool.shown() == []
        packages.fails.clear()
        await use(pool, "a")
        assert packages.began == ["a", "a", "a"]
        assert pool.tally.failures == {("a", "error"): 2}
        with pytest.raises(ModelNotFound):
            await use(pool, "b")
        nothing_is_left(pool)


@on_a_loop
async def test_a_load_ends_when_nobody_waits_for_it_any_more() -> None:
    packages = FakePackages({"a": 60, "b": 60})
    async with pool_of(packages, memory_bytes=100) as (pool, _):
        async with pool.acquire("a"):
            waiting = [asyncio.ensure_future(use(pool, "b")) for _ in range(2)]
            await until(lambda: states(pool).get("b") == "waiting")
            waiting[0].cancel()
            await asyncio.sleep(0.02)
            assert states(pool)["b"] == "waiting"
            waiting[1].cancel()
            await asyncio.wait(waiting)
            assert names(pool) == ["a"]
        packages.reads.clear()
        late = asyncio.ensure_future(use(pool, "b"))
        await until(lambda: "b" in packages.began)
        late.cancel()
        await until(lambda: not names(pool))  # with half of its weights read
        assert [one.name for one in packages.loaded] == ["a"]
        assert not packages.reads.is_set()


@on_a_loop
async def test_who_comes_while_a_load_ends_gets_another() -> None:
    packages = FakePackages({"a": 60})
    async with pool_of(packages, memory_bytes=100) as (pool, _):
        packages.reads.clear()
        first = asyncio.ensure_future(use(pool, "a"))
        await until(lambda: packages.began)
        first.cancel()
        await asyncio.wait([first])
        assert states(pool) == {"a": "leaving"}
        second = asyncio.ensure_future(use(pool, "a"))
        await until(lambda: packages.began == ["a", "a"])  # once the first has given its room back
        packages.reads.set()
        assert (await second).model.alive
        assert len(packages.loaded) == 1


@on_a_loop
async def test_a_model_that_is_stopped_while_it_is_read_is_read_no_further() -> None:
    packages = FakePackages({"a": 10})
    async with pool_of(packages) as (pool, _):
        packages.reads.clear()
        waiting = asyncio.ensure_future(use(pool, "a"))
        await until(lambda: packages.began)
        pool.stop("a", now=True)
        with pytest.raises(ModelClosed, match="a was stopped"):
            await waiting
        await until(lambda: not names(pool))
        assert not packages.loaded
        assert not pool.tally.failures


@on_a_loop
async def test_closing_tells_those_who_wait() -> None:
    packages = FakePackages({"a": 60, "b": 60, "c": 10})
    async with pool_of(packages, memory_bytes=100) as (pool, _):
        async with pool.acquire("a"):
            packages.reads.clear()
            waiting = [asyncio.ensure_future(use(pool, name)) for name in "bc"]
            await until(lambda: states(pool).get("b") == "waiting" and "c" in packages.began)
            closing = asyncio.ensure_future(pool.close())
            for one in waiting:
                with pytest.raises(ModelClosed, match="the server is stopping"):
                    await one
            packages.reads.set()
            await closing
        with pytest.raises(ModelClosed):
            await use(pool, "a")


@on_a_loop
async def test_closing_does_not_wait_for_what_is_done() -> None:
    """Who is done leaves the set at the loop's next turn, which waiting for the done alone never gives it."""
    async with pool_of(FakePackages({"a": 10})) as (pool, _):
        done = asyncio.ensure_future(asyncio.sleep(0))
        await done
        pool._moves._tasks.add(done)
        await asyncio.wait_for(pool.close(), 60)


@on_a_loop
async def test_closing_waits_for_loads_that_nobody_wants_any_more() -> None:
    packages = FakePackages({"a": 10})
    async with pool_of(packages) as (pool, _):
        packages.headers.clear()
        asked = asyncio.ensure_future(use(pool, "a"))
        await until(lambda: packages.opened)
        asked.cancel()
        await asyncio.wait([asked])
        assert not names(pool)
        asyncio.get_running_loop().call_later(0.05, packages.headers.set)
        await pool.close()
        assert packages.headers.is_set()
        assert not [one for one in threading.enumerate() if one.name == "modelkit-load-a"]
