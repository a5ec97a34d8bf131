"""Loaded models by name. `acquire` lends one; it is loaded where it is not there yet."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from modelkit.model import Model


@dataclass(frozen=True, slots=True)
class Lease:
    """A model that stays loaded for as long as this is held."""

    model: Model
    load_s: float = 0.0
    """How long whoever holds it has waited for it to be loaded."""


class Pool:
    """On the event loop's thread only.

    load: gives the model of a name, in a worker thread. Raises ModelkitError.
    """

    def __init__(self, load: Callable[[str], Model]) -> None:
        self._load = load
        self._models: dict[str, asyncio.Future[Model]] = {}

    @asynccontextmanager
    async def acquire(self, name: str, keep_alive: float | None = None) -> AsyncGenerator[Lease]:
        """A loaded model. keep_alive: seconds until it may leave once nobody holds it; negative: never; None:
        as the server is set.
        """
        began = time.monotonic()
        waiting = self._models.get(name)
        if waiting is None:
            waiting = asyncio.ensure_future(asyncio.to_thread(self._load, name))
            self._models[name] = waiting
        try:
            model = await asyncio.shield(waiting)
        except Exception:
            self._models.pop(name, None)
            raise
        yield Lease(model, time.monotonic() - began)

    def models(self) -> list[Model]:
        """Those that are loaded."""
        return [one.result() for one in self._models.values() if one.done() and not one.exception()]

    async def close(self) -> None:
        """Close every model."""
        for model in self.models():
            await asyncio.to_thread(model.close)
        self._models.clear()
