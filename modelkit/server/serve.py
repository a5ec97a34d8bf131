"""A server from its first line to its last: a socket, the models, and everything put away again."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from modelkit.durations import FOR_EVER
from modelkit.model import Model
from modelkit.server.access import Access
from modelkit.server.announce import announce, withdraw
from modelkit.server.app import make_app
from modelkit.server.limits import Limits
from modelkit.server.listening import Server
from modelkit.server.log import Log, PromptLog
from modelkit.server.metrics import Metrics
from modelkit.server.place import Place, address_of, listen
from modelkit.server.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from modelkit.verbs import load


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for."""

    settings: Settings
    names: Sequence[str] = ()
    """Models that are loaded first, and stay."""
    place: Place = field(default_factory=Place)
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    log: Log = field(default_factory=Log)
    prompts: PromptLog | None = None
    metrics: Metrics = field(default_factory=Metrics)
    load: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Keywords of `load` for every model: limits of what is kept of prompts, and PARAMETERs."""


def serve(wanted: Wanted, say: Callable[[str], None]) -> None:
    """Until a signal comes. say: told what a user should know. Raises ModelkitError where the server cannot
    start, or a model that was named cannot be loaded.
    """
    listeners = listen(wanted.place)
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_serve(wanted, listeners, say))
    finally:
        for one in listeners:
            one.close()
        if wanted.place.uds is not None:
            wanted.place.uds.unlink(missing_ok=True)


async def _serve(wanted: Wanted, listeners: list[socket.socket], say: Callable[[str], None]) -> None:
    def opened(name: str) -> Model:
        return load(name, home=wanted.settings.home, max_waiting=wanted.limits.waiting, **wanted.load)

    pool = Pool(opened)
    serving = Serving(
        pool,
        wanted.settings,
        wanted.limits,
        wanted.access,
        wanted.log,
        wanted.metrics,
        prompts=wanted.prompts,
    )
    address = address_of(listeners[0], wanted.place)
    server = Server(make_app(serving), serving, wanted.place, lambda: say(f"listening on {address}"))
    serving.state.loading = bool(wanted.names)
    preloading = asyncio.ensure_future(_preload(wanted.names, serving, say))
    preloading.add_done_callback(lambda done: server.stop() if done.exception() else None)
    announced = announce(wanted.settings.home, address)
    try:
        await server.serve(listeners)
        if preloading.done():
            preloading.result()
    finally:
        withdraw(announced)
        await pool.close()


async def _preload(names: Sequence[str], serving: Serving, say: Callable[[str], None]) -> None:
    for name in names:
        async with serving.pool.acquire(name, FOR_EVER) as lease:
            say(f"{lease.model.name} is loaded, in {lease.load_s:.1f} s")
    serving.state.loading = False


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # a platform without it; plain asyncio holds up the engine's thread for longer
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
