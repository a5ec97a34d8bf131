"""Models for the pool that take no time and no memory, and stop where a test wants them to."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from modelkit.errors import ModelNotFound
from modelkit.memory import Memory
from modelkit.model import Model
from modelkit.server.stored import Found
from runtime.engine.activity import Activity


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

    def find(self, name: str) -> Found:
        if name.lower() not in self.sizes:
            raise ModelNotFound(f"there is no model {name!r}")
        return Found(name.lower(), self.digests.get(name.lower(), f"sha256:{name.lower()}"))

    def load(self, found: Found, on_memory: Callable[[Memory, str | None], None]) -> Model:
        memory = Memory(
            weight_bytes=self.sizes[found.name],
            draft_bytes=0,
            cache_bytes=0,
            available_bytes=0,
            prefix_bytes=self.prefixes,
        )
        self.opened.append(found.name)
        assert self.headers.wait(30)
        on_memory(memory, None)
        self.began.append(found.name)
        assert self.reads.wait(30)
        if found.name in self.fails:
            raise self.fails[found.name]
        model: Any = FakeModel(found.name, found.digest, memory)
        self.loaded.append(model)
        return model


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for what threads bring about."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)
