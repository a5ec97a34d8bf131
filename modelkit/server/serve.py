"""A server from its first line to its last: a socket, the models, and everything put away again."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import Any

from modelkit.durations import FOR_EVER
from modelkit.python_faults import os_reason
from modelkit.ranks.current import current_group
from modelkit.server.access import Access
from modelkit.server.announce import announce, withdraw
from modelkit.server.app import make_app
from modelkit.server.http.listening import Server
from modelkit.server.http.place import Place, address_of, listen
from modelkit.server.limits import Limits
from modelkit.server.log import Log, PromptLog
from modelkit.server.metrics import Metrics
from modelkit.server.models.model_source import StoredModels
from modelkit.server.models.moves import UNLIMITED, Capacity
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from runtime import device
from runtime.records import dataclass

# Of what is free when the server starts: the rest is for what nobody foresees.
_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class ServeOptions:
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
    default_model: str | None = None
    """As in Serving."""
    load: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Keywords of `load` for every model: limits of what is kept of prompts, and PARAMETERs."""
    memory_bytes: int | None = None
    """What all models together may take; None: most of what is free."""


Wait = Callable[[str], AbstractContextManager[Any]]
"""Shows, for as long as its block runs, that a model of this name is being loaded."""


def serve(wanted: ServeOptions, say: Callable[[str], None], wait: Wait) -> None:
    """Until a signal comes. say: told what a user should know. Raises ModelkitError where the server cannot
    start, or a model that was named cannot be loaded; before it listens, where that is known without weights.
    """
    stored = StoredModels(wanted.settings, wanted.log.notes, max_waiting=wanted.limits.waiting, **wanted.load)
    writes = {name: stored.require(name) for name in (*wanted.names, *filter(None, [wanted.default_model]))}
    listeners = listen(wanted.place)

    def greet(address: str) -> None:
        say("\n".join(_how(address, wanted, writes)))

    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_serve(wanted, stored, listeners, greet, say, wait))
    finally:
        for one in listeners:
            one.close()
        if wanted.place.uds is not None:
            wanted.place.uds.unlink(missing_ok=True)


def _capacity(wanted: ServeOptions) -> Capacity:
    return Capacity(
        memory_bytes=wanted.memory_bytes or room_here(),
        keep_alive_s=wanted.settings.keep_alive_s,
        waiting=wanted.limits.waiting,
        waiting_in_all=2 * wanted.limits.waiting,
    )


async def _serve(
    wanted: ServeOptions,
    stored: StoredModels,
    listeners: list[socket.socket],
    greet: Callable[[str], None],
    say: Callable[[str], None],
    wait: Wait,
) -> None:
    """greet: told the address, once it listens."""
    pool = Pool(stored, _capacity(wanted))
    serving = Serving(
        pool,
        wanted.settings,
        wanted.limits,
        wanted.access,
        wanted.log,
        wanted.metrics,
        default_model=wanted.default_model,
        prompts=wanted.prompts,
    )
    address = address_of(listeners[0], wanted.place)
    server = Server(make_app(serving), serving, wanted.place, lambda: greet(address))
    serving.state.loading = bool(wanted.names)
    preloading = asyncio.ensure_future(_preload(wanted.names, serving, say, wait))
    preloading.add_done_callback(
        lambda done: None if done.cancelled() or not done.exception() else server.stop()
    )
    announced = _announce(wanted.settings.home, address, say)
    try:
        await server.serve(listeners)
        if preloading.done():
            preloading.result()
    finally:
        withdraw(announced)
        if wanted.prompts is not None:
            wanted.prompts.close()
        await pool.close()


async def _preload(names: Sequence[str], serving: Serving, say: Callable[[str], None], wait: Wait) -> None:
    for name in names:
        with wait(name):
            async with serving.pool.acquire(name, FOR_EVER) as lease:
                pass
        say(f"{lease.model.name} is loaded, in {lease.load_s:.1f} s")
    serving.state.loading = False


def _announce(home: Path, address: str, say: Callable[[str], None]) -> Path | None:
    """A home that cannot be written is no reason not to serve."""
    try:
        return announce(home, address)
    except OSError as error:
        say(f"other commands will not find this server: {home}: {os_reason(error)}")
        return None


def _how(address: str, wanted: ServeOptions, writes: Mapping[str, bool]) -> Iterator[str]:
    """Where it is, and how to try it. writes: of the names that were given, do they write text?"""
    names = sorted(wanted.names or ["NAME"], key=lambda name: not writes.get(name, True))
    path, said = "chat/completions", '"messages": [{"role": "user", "content": "Hello"}]'
    if not writes.get(names[0], True):
        path, said = "embeddings", '"input": "Hello"'
    unix = wanted.place.uds is not None
    to = f"--unix-socket {wanted.place.uds} http://localhost" if unix else address
    key = ' -H "Authorization: Bearer $MODELKIT_API_KEY"' if wanted.access.keys else ""
    yield f"listening on {address}"
    if not unix:
        yield f"  a page to talk to it: {address}/"
    yield f"  OpenAI's clients: base_url={'http://localhost' if unix else address}/v1"
    yield f'  a request: curl {to}/v1/{path}{key} -d \'{{"model": "{names[0]}", {said}}}\''


def room_here() -> int:
    """Bytes that models may take together where nobody has said: of the memory that MLX computes in, on all
    machines that a launcher has started this on. A model counts there with all of it, too.
    """
    rank_group = current_group()
    free = device.device().available_bytes if rank_group is None else rank_group.free_bytes
    return int(free * _SHARE) or UNLIMITED


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # a platform without it; plain asyncio holds up the engine's thread for longer
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
