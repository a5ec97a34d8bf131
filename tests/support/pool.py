"""Models for the pool that take no time and no memory, and stop where a test wants them to."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from modelkit.errors import ModelNotFound
from modelkit.memory import Memory
from modelkit.model import Model
from modelkit.server.models.model_source import FoundModel, LoadListener
from modelkit.server.models.moves import Capacity
from modelkit.server.models.pool import Lease, Pool
from runtime.engine.activity import Activity

PATIENCE_S = 200
"""Then whoever holds a load back has forgotten it."""


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class FakeModel:
    """As the pool sees one."""

    def __init__(self, name: str, digest: str, memory: Memory) -> None:
        self.name, self.digest, self.memory = name, digest, memory
        self.load_s, self.alive, self.places = 0.5, True, 1
        self.limits: list[int] = []
        self.held = self.layers = 0
        self.writes = True
        self.lent: list[int] = []

    @property
    def activity(self) -> Activity:
        return Activity(0, 0, self.places, self.layers, 0, 0, ("lookup",))

    def limit_prefixes(self, limit_bytes: int) -> int:
        self.limits.append(limit_bytes)
        return max(limit_bytes, self.held)

    def limit_layers(self, limit_bytes: int) -> None:
        self.lent.append(limit_bytes)

    def close(self) -> None:
        self.alive = False


@dataclass
class FakePackages:
    """A source. sizes: weights of each name; loads can be held back, or fail."""

    sizes: dict[str, int]
    prefixes: int = 0
    rows: int = 1
    conversation: int = 0
    """What one takes."""
    longest: int = 0
    """What one takes that fills the context."""
    digests: dict[str, str] = field(default_factory=dict[str, str])
    fails: dict[str, Exception] = field(default_factory=dict[str, Exception])
    loaded: list[FakeModel] = field(default_factory=list[FakeModel])
    began: list[str] = field(default_factory=list[str])
    opened: list[str] = field(default_factory=list[str])
    headers: threading.Event = field(default_factory=threading.Event)
    """Headers are read only while this is set."""
    reads: threading.Event = field(default_factory=threading.Event)
    """Weights are read only while this is set."""

    def __post_init__(self) -> None:
        self.headers.set()
        self.reads.set()

    def spelled(self, name: str) -> str:
        return name.lower()

    def find(self, name: str) -> FoundModel:
        if name.lower() not in self.sizes:
            raise ModelNotFound(f"there is no model {name!r}")
        return FoundModel(name.lower(), self.digests.get(name.lower(), f"sha256:{name.lower()}"))

    def load(self, found: FoundModel, listener: LoadListener) -> Model:
        memory = Memory(
            weight_bytes=self.sizes[found.name],
            draft_bytes=0,
            cache_bytes=self.longest,
            available_bytes=0,
            prefix_bytes=self.prefixes,
            likely_bytes=self.conversation,
            rows=self.rows,
        )
        self.opened.append(found.name)
        assert self.headers.wait(PATIENCE_S)
        listener.memory(memory, None)
        self.began.append(found.name)
        end_s = time.monotonic() + PATIENCE_S
        while not self.reads.wait(0.005):  # as weights come, tensor by tensor
            assert time.monotonic() < end_s
            listener.weights(1)
        if found.name in self.fails:
            raise self.fails[found.name]
        model: Any = FakeModel(found.name, found.digest, memory)
        self.loaded.append(model)
        return model

    def came(self, found: FoundModel, model: Model) -> FoundModel:
        return FoundModel(found.name, model.digest or found.digest)


async def until(condition: Callable[[], object], seconds: float = 100.0) -> None:
    """Wait for what threads bring about."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


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
