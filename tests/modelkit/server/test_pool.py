"""The pool with models that take no time: who waits for whom, who leaves when, and what is left behind."""

import asyncio
import gc
import random
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest

from modelkit.errors import Busy, LoadError, ModelClosed, ModelNotFound
from modelkit.server.moves import Capacity
from modelkit.server.pool import Lease, Pool
from tests.support.pool import Clock, FakePackages, until

Test = Callable[..., Coroutine[Any, Any, None]]


def on_a_loop(test: Test) -> Callable[..., None]:
    """A test that is a coroutine."""

    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(test(*given, **named))

    return run


@asynccontextmanager
async def pool_of(packages: FakePackages, **capacity: Any) -> AsyncGenerator[tuple[Pool, Clock]]:
    clock = Clock()
    pool = Pool(packages, Capacity(**capacity), clock)
    try:
        yield pool, clock
    finally:
        packages.reads.set()
        await pool.close()
        assert all(not model.alive for model in packages.loaded), [m.name for m in packages.loaded if m.alive]


async def use(pool: Pool, name: str, keep_alive: float | None = None) -> Lease:
    async with pool.acquire(name, keep_alive) as lease:
        return lease


def names(pool: Pool) -> list[str]:
    return [one.name for one in pool.shown()]


def states(pool: Pool) -> dict[str, str]:
    return {one.name: one.state for one in pool.shown()}


def nothing_is_left(pool: Pool) -> None:
    assert all(one.users == one.waiting == 0 for one in pool.shown())
    assert pool._in_all.count == 0  # pyright: ignore[reportPrivateUsage]


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
        packages.reads.set()
        await until(lambda: not names(pool))
        assert not packages.loaded[-1].alive


@on_a_loop
async def test_who_comes_while_it_is_loaded_for_nobody_gets_it() -> None:
    packages = FakePackages({"a": 10})
    async with pool_of(packages) as (pool, _):
        packages.reads.clear()
        first = asyncio.ensure_future(use(pool, "a"))
        await until(lambda: packages.began)
        first.cancel()
        await asyncio.wait([first])
        second = asyncio.ensure_future(use(pool, "a"))
        await asyncio.sleep(0.01)
        packages.reads.set()
        assert (await second).model.alive
        assert packages.began == ["a"]


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
async def test_a_model_that_can_never_fit_is_refused_at_once() -> None:
    async with pool_of(FakePackages({"a": 200}), memory_bytes=100) as (pool, _):
        with pytest.raises(LoadError, match="no room for a: it takes 200 B, models may take 100 B") as said:
            await use(pool, "a")
        assert "smaller model" in (said.value.hint or "")
        assert pool.tally.failures == {("a", "too_large"): 1}
        assert pool.shown() == []


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
