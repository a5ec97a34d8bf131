"""A server from its first line to its last: models loaded, a socket, and everything put away again."""

import asyncio
from collections.abc import Callable, Sequence

from modelkit.model import Model
from modelkit.server.app import make_app
from modelkit.server.listening import Place, Server, address_of, listen
from modelkit.server.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from modelkit.verbs import load


def serve(names: Sequence[str], place: Place, say: Callable[[str], None]) -> None:
    """Until a signal comes. names: models that are loaded first, and stay. say: told what a user should
    know.
    """
    settings = Settings.from_environment()
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(names, place, settings, say))


async def _serve(names: Sequence[str], place: Place, settings: Settings, say: Callable[[str], None]) -> None:
    def open_model(name: str) -> Model:
        return load(name, home=settings.home)

    pool = Pool(open_model)
    serving = Serving(pool, settings)
    listener = listen(place)
    address = address_of(listener, place)
    for name in names:
        async with pool.acquire(name, -1) as lease:
            say(f"{lease.model.name} is loaded, in {lease.load_s:.1f} s")
    server = Server(make_app(serving), serving, place, lambda: say(f"listening on {address}"))
    try:
        await server.serve([listener])
    finally:
        await pool.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # a platform without it; plain asyncio holds up the engine's thread for longer
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
