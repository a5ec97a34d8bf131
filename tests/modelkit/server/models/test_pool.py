"""Models of the pool: how long they stay, which package a name stands for, and how they are stopped."""

import asyncio
import gc
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from modelkit.errors import ModelClosed, ModelNotFound
from modelkit.server.models.moves import Capacity
from modelkit.server.models.pool import Lease, Pool
from modelkit.server.ollama.descriptions import running
from modelkit.server.own import models as own
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
async def test_the_clock_of_a_model_starts_when_its_last_lease_ends() -> None:
    packages = FakePackages({"a": 10})
    async with pool_of(packages, keep_alive_s=300) as (pool, clock):
        async with pool.acquire("a", turn=False):
            await use(pool, "a")
            clock.now_s += 1000
            pool.settle()
            assert states(pool) == {"a": "ready"}
            assert pool.shown()[0].expires_in_s is None
        assert pool.shown()[0].expires_in_s == 300
        clock.now_s += 299
        pool.settle()
        assert states(pool) == {"a": "ready"}
        clock.now_s += 1
        pool.settle()
        await until(lambda: not names(pool))
        assert not packages.loaded[0].alive


@pytest.mark.parametrize(
    ("asked", "left_s"), [([60], 60), ([60, None], 60), ([60, 10], 10), ([-1], float("inf")), ([None], 300)]
)
@on_a_loop
async def test_a_request_says_how_long_its_model_stays(asked: list[float | None], left_s: float) -> None:
    async with pool_of(FakePackages({"a": 10}), keep_alive_s=300) as (pool, _):
        for keep_alive in asked:
            await use(pool, "a", keep_alive)
        assert pool.shown()[0].expires_in_s == left_s


@pytest.mark.parametrize(("asked", "after_s"), [(3600, 3600), (-1, 200 * 365 * 86400)])
@on_a_loop
async def test_a_model_in_use_is_told_to_stay_for_its_own_time(asked: float, after_s: float) -> None:
    """Not for the server's: a client that reads `ps` while its answer is written would find that nobody has
    heard what it asked.
    """
    async with pool_of(FakePackages({"a": 10}), keep_alive_s=300) as (pool, _), pool.acquire("a", asked):
        (told,) = running(Path("/nowhere"), pool.shown())["models"]
        left_s = (datetime.fromisoformat(told["expires_at"]) - datetime.now(UTC)).total_seconds()
        assert left_s > after_s - 60
        row = json.loads(bytes(JSONResponse(own.row(pool.shown()[0], 0.0)).body))
        assert (row["expires_in_s"], row["keep_alive_s"]) == (None, asked if asked > 0 else None)


@on_a_loop
async def test_it_leaves_by_itself_and_at_once_where_that_was_asked() -> None:
    packages = FakePackages({"a": 10, "b": 10})
    pool = Pool(packages, Capacity(keep_alive_s=0.05))
    await use(pool, "a")
    async with pool.acquire("b", 0), pool.acquire("b", turn=False):
        assert "b" in names(pool)
    await until(lambda: not names(pool))
    assert not any(model.alive for model in packages.loaded)
    await pool.close()


@on_a_loop
async def test_a_name_that_stands_for_another_package_gets_another_model() -> None:
    packages = FakePackages({"a": 10, "copy": 10}, digests={"a": "one", "copy": "one"})
    async with pool_of(packages) as (pool, _):
        await use(pool, "copy")
        async with pool.acquire("a") as old:
            assert len(packages.loaded) == 1  # one package, two names
            packages.digests["a"] = "two"
            new = await use(pool, "a")
            assert (old.digest, new.digest) == ("one", "two")
            assert new.model is not old.model
            assert (await use(pool, "copy")).model is old.model
            packages.digests["copy"] = "two"
            assert (await use(pool, "copy")).model is new.model
            assert old.model.alive
        await until(lambda: len(pool.shown()) == 1)
        assert not old.model.alive
        assert set(pool.tally.departures.values()) == {1}
        assert {why for _, why in pool.tally.departures} == {"replaced"}


@pytest.mark.parametrize(("stopped", "left_s"), [(False, float("inf")), (True, 300)])
@on_a_loop
async def test_a_package_that_was_created_again_stays_as_long_as_the_one_before(
    stopped: bool, left_s: float
) -> None:
    packages = FakePackages({"a": 10}, digests={"a": "one"})
    async with pool_of(packages, keep_alive_s=300) as (pool, _):
        async with pool.acquire("a", -1):
            if stopped:
                pool.stop("a")
            packages.digests["a"] = "two"
            await use(pool, "a")
        assert [one.expires_in_s for one in pool.shown() if one.digest == "two"] == [left_s]


@on_a_loop
async def test_a_model_goes_by_a_name_that_still_stands_for_it() -> None:
    packages = FakePackages({"a": 10, "copy": 10}, digests={"a": "one", "copy": "one"})
    async with pool_of(packages) as (pool, _):
        await use(pool, "a")
        async with pool.acquire("copy"):
            packages.digests["a"] = "two"
            await use(pool, "a")
            assert {one.name: one.digest for one in pool.shown()} == {"a": "two", "copy": "one"}
            assert pool.stop("a")
            await until(lambda: names(pool) == ["copy"])
            assert (await use(pool, "copy")).name == "copy"


@on_a_loop
async def test_a_model_is_stopped_by_any_name_of_its_package() -> None:
    packages = FakePackages({"a": 10, "copy": 10, "other": 10}, digests={"a": "one", "copy": "one"})
    async with pool_of(packages) as (pool, _):
        await use(pool, "a")
        assert not pool.stop("other")
        assert pool.stop("copy")
        await until(lambda: not names(pool))
        async with pool.acquire("a"):
            del packages.sizes["a"]
            assert pool.stop("a")  # there is no package of that name any more
        await until(lambda: not names(pool))


@on_a_loop
async def test_a_model_whose_last_name_is_forgotten_leaves_once_it_is_idle() -> None:
    packages = FakePackages({"a": 10, "copy": 10}, digests={"a": "one", "copy": "one"})
    async with pool_of(packages) as (pool, _):
        await use(pool, "a")
        async with pool.acquire("copy") as lease:
            pool.forget("A")
            assert names(pool) == ["copy"]
            pool.forget("copy")
            pool.forget("none")
            assert lease.model.alive
        await until(lambda: not names(pool))


@on_a_loop
async def test_the_model_of_a_removed_package_leaves_once_it_is_idle() -> None:
    packages = FakePackages({"a": 10})
    async with pool_of(packages) as (pool, _):
        async with pool.acquire("a") as lease:
            del packages.sizes["a"]
            with pytest.raises(ModelNotFound):
                await use(pool, "a")
            assert lease.model.alive
        await until(lambda: not names(pool))


@on_a_loop
async def test_a_model_whose_engine_died_is_loaded_again() -> None:
    packages = FakePackages({"a": 10})
    async with pool_of(packages) as (pool, _):
        async with pool.acquire("a") as lease:
            packages.loaded[0].alive = False
            assert (await use(pool, "a")).model is not lease.model
        await until(lambda: names(pool) == ["a"] and states(pool) == {"a": "ready"})
        assert pool.tally.departures == {("a", "failed"): 1}


@on_a_loop
async def test_stop_lets_requests_end_and_stop_now_does_not() -> None:
    packages = FakePackages({"a": 10, "b": 10})
    async with pool_of(packages) as (pool, _):
        assert not pool.stop("a")
        async with pool.acquire("a", -1) as lease:
            assert pool.stop("A")
            await asyncio.sleep(0.01)
            assert lease.model.alive
        await until(lambda: not names(pool))
        assert pool.tally.departures == {("a", "stopped"): 1}
        async with pool.acquire("a") as lease:
            places = [asyncio.ensure_future(use(pool, "a")) for _ in range(30)]
            await asyncio.sleep(0.01)
            pool.stop("a", now=True)
            await until(lambda: not lease.model.alive)
            ends = await asyncio.gather(*places, return_exceptions=True)
            assert all(isinstance(end, Lease | ModelClosed) for end in ends)
        packages.reads.clear()
        waiting = asyncio.ensure_future(use(pool, "b"))
        await until(lambda: "b" in packages.began)
        pool.stop("b", now=True)
        with pytest.raises(ModelClosed, match="b was stopped"):
            await waiting
        packages.reads.set()
        await until(lambda: not names(pool))
        nothing_is_left(pool)
        assert pool.tally.departures == {("a", "stopped"): 2}  # b never came


@on_a_loop
async def test_a_lease_may_end_after_its_pool() -> None:
    packages = FakePackages({"a": 40, "b": 40}, prefixes=60)
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: unheard.append(said))
    async with pool_of(packages, memory_bytes=100) as (pool, _):
        async with pool.acquire("a"):
            packages.loaded[0].held = 60  # what it stands on cannot go yet
            waiting = asyncio.ensure_future(use(pool, "b"))
            await until(lambda: packages.loaded[0].limits)
            await pool.close()
            with pytest.raises(ModelClosed):
                await waiting
        await asyncio.sleep(0)
    gc.collect()
    assert not unheard
