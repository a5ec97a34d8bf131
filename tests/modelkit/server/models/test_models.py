"""The pool with real models out of a store: one answers while another loads, leaving gives memory back."""

import asyncio
import gc
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import mlx.core as mx
import pytest

import modelkit
from modelkit.errors import InvalidName, ModelClosed, ModelkitError, ModelNotFound
from modelkit.memory import Memory
from modelkit.model import Model
from modelkit.server.app import make_app
from modelkit.server.models.model_source import FoundModel, LoadListener, StoredModels
from modelkit.server.models.moves import Capacity
from modelkit.server.models.pool import Lease, Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from modelkit.store import Store
from runtime import device
from tests.support.pool import until
from tests.support.served import Quiet
from tests.support.tiny import write_model


def package(home: Path, name: str, *lines: str, **changes: Any) -> None:
    folder = home / f"of-{name}"
    if not folder.exists():
        write_model(folder, **changes)
    (home / "Modelfile").write_text("\n".join([f"FROM {folder}", *lines]) + "\n")
    modelkit.create(home / "Modelfile", name=name, home=home)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    package(home, "story")
    package(home, "poem", seed=3)
    package(home, "heavy", hidden_size=256, intermediate_size=1024, num_hidden_layers=4)
    return home


class Held(StoredModels):
    """A store whose loads read no weights until they are let."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        super().__init__(settings, **options)
        self.go, self.held = threading.Event(), threading.Event()
        self.go.set()

    def load(self, found: FoundModel, listener: LoadListener) -> Model:
        def told(memory: Memory, shortage: str | None) -> None:
            listener.memory(memory, shortage)
            self.held.set()
            assert self.go.wait(30)

        class Holding:
            memory, weights = staticmethod(told), listener.weights

        return super().load(found, Holding())


def pool_at(home: Path, **capacity: Any) -> tuple[Pool, Held]:
    held = Held(replace(Settings.from_environment({}), home=home), cache_memory="1MB")
    return Pool(held, Capacity(**capacity)), held


async def use(pool: Pool, name: str, keep_alive: float | None = None) -> Lease:
    async with pool.acquire(name, keep_alive) as lease:
        return lease


def test_a_model_goes_on_answering_while_another_loads(home: Path) -> None:
    async def run() -> None:
        pool, source = pool_at(home)
        async with pool.acquire("story") as lease:
            source.go.clear()
            source.held.clear()
            loading = asyncio.ensure_future(use(pool, "poem"))
            await until(source.held.is_set)
            tokens = 0
            stream = lease.model.generate("Once", raw=True, num_predict=40, seed=1, stream=True)
            async for _ in stream.events():
                tokens += 1
            assert tokens > 1
            assert not loading.done()
            assert {one.name: one.state for one in pool.shown()} == {
                "story:latest": "ready",
                "poem:latest": "loading",
            }
            stream = lease.model.generate("Once", raw=True, num_predict=200, seed=1, stream=True)
            next(stream)
            source.go.set()
            assert (await loading).model.generate("It", raw=True, num_predict=2)
            stream.close()
        await pool.close()

    asyncio.run(run())


def test_a_model_on_its_way_is_listed_with_its_packages_context(home: Path) -> None:
    """Clients budget a conversation with that number."""

    class Opening(StoredModels):
        go = threading.Event()

        def load(self, found: FoundModel, listener: LoadListener) -> Model:
            assert self.go.wait(30)
            return super().load(found, listener)

    async def run() -> None:
        settings = replace(Settings.from_environment({}), home=home)
        pool = Pool(Opening(settings))
        transport = httpx.ASGITransport(make_app(Serving(pool, settings, log=Quiet())))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            before = (await client.get("/v1/models/story")).json()
            loading = asyncio.ensure_future(use(pool, "story"))
            await until(pool.shown)
            assert (await client.get("/v1/models/story")).json() == before
            assert (before["loaded"], before["context_length"] > 0) == (False, True)
            Opening.go.set()
            await loading
            assert (await client.get("/v1/models/story")).json() == {**before, "loaded": True}
        await pool.close()

    asyncio.run(run())


def held(home: Path) -> int:
    """Bytes of MLX's arrays and of mapped files of the store."""
    mapped = 0
    if sys.platform == "linux":
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            place, *_, path = line.split(maxsplit=5)
            if path.startswith(str(home)):
                start, stop = (int(end, 16) for end in place.split("-"))
                mapped += stop - start
    return mx.get_active_memory() + mapped


def test_a_model_that_leaves_gives_its_memory_back(home: Path) -> None:
    async def run() -> None:
        pool, source = pool_at(home)
        device.give_back()
        before = held(home)
        lease = await use(pool, "heavy", 0.02)
        lease.model.encode("held by somebody who forgot it")
        weights = lease.model.memory.weight_bytes
        taken = held(home) - before
        assert taken >= weights > 10**6
        await until(lambda: not pool.shown())
        assert held(home) - before < weights // 20
        # One that nobody waits for any more while its weights are read leaves nothing either.
        source.go.clear()
        source.held.clear()
        gone = asyncio.ensure_future(use(pool, "heavy"))
        await until(source.held.is_set)
        gone.cancel()
        await asyncio.wait([gone])
        source.go.set()
        await until(lambda: not pool.shown())
        assert held(home) - before < weights // 20
        await pool.close()

    asyncio.run(run())


def test_a_load_ends_where_a_tensor_was_one_too_many(home: Path) -> None:
    class Enough(Exception):
        pass

    read: list[int] = []

    def told(nbytes: int) -> None:
        read.append(nbytes)
        if len(read) == 5:
            raise Enough

    before = held(home)
    with pytest.raises(Enough):
        modelkit.load("heavy", home=home, on_weights=told)
    assert len(read) == 5
    gc.collect()  # the frames that the error has passed
    device.give_back()
    assert held(home) - before < 10**6
    read.clear()
    with modelkit.load("heavy", home=home, on_weights=read.append) as model:
        assert sum(read) == model.memory.weight_bytes


def test_a_package_that_is_created_again_is_picked_up(tmp_path: Path) -> None:
    async def run() -> None:
        package(tmp_path, "story", "PARAMETER num_predict 3")
        modelkit.copy("story", "saga", home=tmp_path)
        pool, _ = pool_at(tmp_path)
        async with pool.acquire("story") as old:
            assert (await use(pool, "saga")).model is old.model
            package(tmp_path, "story", "PARAMETER num_predict 5")
            new = await use(pool, "Story")
            assert new.digest == str(Store(tmp_path).digest("story")) != old.digest
            assert (await use(pool, "saga")).model is old.model
            modelkit.remove("saga", home=tmp_path)
            with pytest.raises(ModelNotFound):
                await use(pool, "saga")
            counts = [len(one.model.generate("A", raw=True, seed=2).ids) for one in (old, new)]
            assert counts == [3, 5]
        await until(lambda: len(pool.shown()) == 1)
        assert not old.model.alive
        await pool.close()

    asyncio.run(run())


def test_requests_to_an_engine_that_died_hear_of_it_and_the_next_gets_another(home: Path) -> None:
    async def run() -> None:
        pool, _ = pool_at(home)
        async with pool.acquire("story") as lease:
            engine: Any = lease.model._running.engine  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
            stream = lease.model.generate("Once", raw=True, num_predict=200, stream=True)

            def die() -> None:
                raise SystemExit("the device is lost")

            engine._loop._next = die
            with pytest.raises(ModelkitError, match="cannot answer any more"):
                stream.whole()
            with pytest.raises(ModelClosed):
                lease.model.generate("Once", raw=True)
            again = await use(pool, "story")
            assert again.model is not lease.model
            assert again.model.generate("Once", raw=True, num_predict=2).ids
        await pool.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("another", ModelNotFound),
        ("./of-story", InvalidName),
        ("/etc", InvalidName),
        ("hf.co/org/name", ModelNotFound),
        ("ollama:story", ModelNotFound),
        ("", InvalidName),
        ("a" * 5000, InvalidName),
    ],
)
def test_only_stored_names_are_followed(home: Path, name: str, error: type[Exception]) -> None:
    pool, _ = pool_at(home)
    with pytest.raises(error):
        asyncio.run(use(pool, name))
    assert pool.shown() == []
    asyncio.run(pool.close())


def test_a_function_gives_models_of_packages_that_stay_for_their_names(home: Path) -> None:
    async def run() -> None:
        with modelkit.load("story", home=home) as model:
            pool = Pool(lambda _: model)
            leases = [await use(pool, name) for name in ("any", "any", "other", "any")]
            assert all(lease.model is model for lease in leases)
            pool.stop("any")
            await until(lambda: [one.name for one in pool.shown()] == ["other"])
            assert model.generate("It", raw=True, num_predict=1)
            assert pool.tally.departures == {("any", "stopped"): 1}
            await pool.close()

    asyncio.run(run())


def test_a_model_that_comes_closed_is_an_error_for_whoever_waits(home: Path) -> None:
    async def run() -> None:
        model = modelkit.load("story", home=home)
        model.close()
        pool = Pool(lambda _: model)
        with pytest.raises(ModelClosed):
            await asyncio.wait_for(use(pool, "story"), 20)
        await pool.close()

    asyncio.run(run())
