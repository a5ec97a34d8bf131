"""A server in the process of the test, on a free port of this machine, or at the path of a socket."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from modelkit.server.announce import announce, withdraw
from modelkit.server.app import make_app
from modelkit.server.http.listening import Server
from modelkit.server.http.place import Place, address_of, listen
from modelkit.server.models.model_source import ModelSource, StoredModels
from modelkit.server.models.moves import Capacity
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.served import Quiet


@dataclass(frozen=True)
class Running:
    """A server that runs."""

    address: str
    pool: Pool
    loop: asyncio.AbstractEventLoop
    serving: Serving


@contextmanager
def running(
    home: Path, place: Place | None = None, source: ModelSource | None = None, **fields: Any
) -> Generator[Running]:
    """It ends with the block. fields: of Serving. It is announced as `modelkit serve` does it."""
    place = place or Place(port=0)
    settings = replace(Settings.from_environment({}), home=home, cache_memory_bytes=10**6)
    pool = Pool(source or StoredModels(settings), Capacity())
    serving = Serving(pool, settings, log=Quiet(), **fields)
    listeners, loops = listen(place), list[asyncio.AbstractEventLoop]()
    address, up = address_of(listeners[0], place), threading.Event()
    server = Server(make_app(serving), serving, place, up.set)

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        announced = announce(home, address)
        try:
            await server._serve(listeners)  # pyright: ignore[reportPrivateUsage]  # no signals, off the main thread
        finally:
            withdraw(announced)
            await pool.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="test-server")
    thread.start()
    try:
        assert up.wait(100)
        yield Running(address, pool, loops[0], serving)
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(100)
        for one in listeners:
            one.close()
        assert not thread.is_alive()
