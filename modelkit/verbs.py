"""The functions of the Python API: `create` makes a package, `pull` fetches one, `push` sends one to a
registry, `load` loads one to run.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from modelkit import arguments
from modelkit.address import is_address
from modelkit.arguments import optional
from modelkit.faults import Callbacks, translated
from modelkit.fetch.access import Access, NoListener
from modelkit.gc_pause import uncollected
from modelkit.memory import Memory
from modelkit.model import Model
from modelkit.modelfile import Modelfile, Parameters, read_recipe
from modelkit.modelfile.keywords import LoadParameters
from modelkit.opening import open_model
from modelkit.settings import Settings, settings_at
from modelkit.units import read_size

_MOST_WAITING = 1_000_000
_MOST_RANKS = 1024

if TYPE_CHECKING:
    from modelkit.fetch.pull import Pulled
    from modelkit.fetch.registry.push import Pushed
    from modelkit.opening import Opened
    from modelkit.pack.build import Created
    from modelkit.progress import Progress


def create(
    modelfile: str | os.PathLike[str] | Modelfile,
    *,
    name: str | None = None,
    quantize: str | None = None,
    quantize_draft: str | None = None,
    plain: bool = False,
    fuse_adapters: bool = False,
    offline: bool = False,
    home: str | os.PathLike[str] | None = None,
    progress: "Progress | None" = None,
) -> "Created":
    """Make a package from a Modelfile (a path, or a Modelfile built in code).

    name: the package's name; by default that of the folder that holds the Modelfile.
    quantize, quantize_draft: as after QUANTIZE, such as "q4" or "4.5 bits", for the target and for the draft,
    instead of what the Modelfile says.
    plain: use one format for every matrix; by default sensitive ones get more bits.
    fuse_adapters: merge the adapters of ADAPTER lines into the weights, before these are quantized.
    offline: download nothing, even if FROM names a model of the hub.
    home: the folder of the store, instead of MODELKIT_HOME.
    progress: is told of bytes (`begin`, `advance`, `finish`), and what is fetched if it has a method `say`.

    Raises ModelkitError; then nothing has changed.
    """
    from modelkit.chat.find import check_explicit
    from modelkit.pack import pulling
    from modelkit.pack.build import build
    from modelkit.store.name import Name, valid_name_from
    from modelkit.store.store import Store

    wanted = optional(arguments.text, quantize, "quantize")
    wanted_draft = optional(arguments.text, quantize_draft, "quantize_draft")
    alike, alone = arguments.flag(plain, "plain"), arguments.flag(offline, "offline")
    callbacks = Callbacks()
    listener = None if progress is None else _CallersProgress(progress, callbacks)
    with translated(callbacks):
        if isinstance(modelfile, Modelfile):
            folder = arguments.absolute(modelfile.file).parent
            recipe = modelfile.recipe(folder, check_template=check_explicit)
        else:
            path = arguments.path(modelfile, "modelfile")
            folder = arguments.absolute(path).parent
            recipe = read_recipe(path, folder, check_template=check_explicit)
        named = optional(arguments.text, name, "name")
        target = valid_name_from(folder.name) if named is None else Name.new(named)
        store = Store(settings_at(home).home)
        access = pulling.bring(recipe, store, Access(offline=alone, listener=listener or NoListener()))
        return build(
            recipe,
            target,
            store,
            quantize=wanted,
            quantize_draft=wanted_draft,
            plain=alike,
            fuse_adapters=arguments.flag(fuse_adapters, "fuse_adapters"),
            progress=listener,
            access=access,
        )


def pull(
    address: str,
    *,
    name: str | None = None,
    quantize: str | None = None,
    offline: bool = False,
    insecure: bool = False,
    outline: bool = False,
    home: str | os.PathLike[str] | None = None,
    progress: "Progress | None" = None,
) -> "Pulled":
    """Fetch a model and make a package of it: "hf.co/org/name", "hf.co/org/name:Q4_K_M", "ollama:x".

    name: the package's name; by default the model's, `org/name`.
    insecure: allow plain http to a registry.
    outline: fetch everything of a package in a registry but its weights; each of several machines that run
    it fetches its own part of these.
    quantize, offline, home, progress: as for `create`.

    Raises ModelkitError; then no package has changed.
    """
    from modelkit.pack import pulling
    from modelkit.store.name import Name
    from modelkit.store.store import Store

    wanted = optional(arguments.text, quantize, "quantize")
    alone, plain = arguments.flag(offline, "offline"), arguments.flag(insecure, "insecure")
    text = arguments.text(address, "address")
    callbacks = Callbacks()
    listener = NoListener() if progress is None else _CallersProgress(progress, callbacks)
    with translated(callbacks):
        named = optional(arguments.text, name, "name")
        target = None if named is None else Name.new(named)
        found, store = pulling.read_pull_address(text), Store(settings_at(home).home)
        access = Access(offline=alone, insecure=plain, listener=listener)
        if arguments.flag(outline, "outline"):
            if wanted is not None:
                raise arguments.refused("quantize", wanted, "nothing: an outline is of a package as it is")
            return pulling.pull_outline(found, store, access, name=target)
        return pulling.pull(found, store, access, name=target, quantize=wanted)


def push(
    name: str,
    address: str,
    *,
    insecure: bool = False,
    home: str | os.PathLike[str] | None = None,
    progress: "Progress | None" = None,
) -> "Pushed":
    """Send a stored package to a registry: "oci://registry.example.org/amy/story:q4", "docker.io/amy/story".

    Passwords are those of `modelkit login`, Podman and Docker. insecure: allow plain http. home, progress: as
    for `create`. Raises ModelkitError; the next attempt continues where this one stopped.
    """
    from modelkit.fetch.registry import push as registry
    from modelkit.store.store import Store

    plain = arguments.flag(insecure, "insecure")
    package, text = arguments.text(name, "name"), arguments.text(address, "address")
    callbacks = Callbacks()
    listener = NoListener() if progress is None else _CallersProgress(progress, callbacks)
    with translated(callbacks):
        there, store = registry.read_target(text), Store(settings_at(home).home)
        return registry.push(package, there, store, Access(insecure=plain, listener=listener))


def load(
    name: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str] | None = None,
    cache_memory: str | int | None = None,
    cache_disk: str | int | None = None,
    max_waiting: int = 512,
    ranks: int | None = None,
    shards: int | None = None,
    adapters: Sequence[str | os.PathLike[str]] = (),
    on_memory: Callable[[Memory, str | None], None] | None = None,
    on_weights: Callable[[int], object] | None = None,
    **parameters: Unpack[LoadParameters],
) -> Model:
    """Load a stored package by name, or a model directory by path. A name with a host in it, such as
    "hf.co/org/name", is pulled first, unless an earlier pull of the same name has stored it. Use the result
    as a context manager, or close it.

    cache_memory, cache_disk: limits for prompts cached in memory and on disk, as a number of bytes or a text
    such as "2GB", instead of MODELKIT_CACHE_MEMORY and MODELKIT_CACHE_DISK; 0 caches none. The limit on disk
    is for all packages together.
    max_waiting: how many requests may wait while others are answered; one more raises Busy.
    ranks: run it in this many processes on this machine, each with some of its layers. A process keeps its
    ranks until it ends, for all models that it loads.
    shards: this many of the ranks share the same layers, each with a part of every one.
    adapters: paths of further adapters, as ADAPTER takes them; each is named after its folder.
    on_memory: called before any weight is read, with the memory that the model will take, and a sentence if
    that is more than there is.
    on_weights: called on a thread of the engine with the bytes of each tensor that was read. Whatever this or
    on_memory raises ends the load and is raised here.
    parameters: PARAMETERs, as defaults for all requests to this model; num_ctx, kv_format, num_batch,
    num_thread and num_parallel can only be set here.

    Raises ModelkitError.
    """
    started = time.monotonic()
    wanted = Parameters(parameters)
    callbacks = Callbacks()
    tell = None if on_memory is None else callbacks.heard(arguments.function(on_memory, "on_memory"))
    count = None if on_weights is None else callbacks.heard(arguments.function(on_weights, "on_weights"))
    waiting = arguments.whole(max_waiting, "max_waiting", 1, _MOST_WAITING)
    added = [
        Path(arguments.path(one, "adapters")) for one in arguments.elements(adapters, "adapters", "paths")
    ]
    settings = replace(_with_limits(settings_at(home), cache_memory, cache_disk), max_waiting=waiting)
    if shards is not None:
        settings = replace(settings, shards=arguments.whole(shards, "shards", 1, _MOST_RANKS))
    with (
        uncollected(),
        translated(callbacks),
        open_model(
            _stored(arguments.model(name, "name"), settings), settings, added, outlines=True
        ) as opened,  # ranks may have one
    ):
        _gather(ranks, opened, settings)
        model = Model(opened, wanted, settings, tell, count)
    model.load_s = time.monotonic() - started
    return model


def _gather(ranks: int | None, opened: "Opened", settings: Settings) -> None:
    """Start the other ranks, for as long as this process lives, if the model can be cut for them."""
    if ranks is None or arguments.whole(ranks, "ranks", 1, _MOST_RANKS) == 1:
        return
    from modelkit.ranks.current import current_group
    from modelkit.ranks.hosts import hosts_here
    from modelkit.ranks.rendezvous import gather
    from modelkit.showing.planning import plan_for
    from runtime.device import device

    if current_group() is None:
        plan_for(opened, hosts_here(ranks), shards=settings.shards, on=device())
    gather(ranks, settings.home)


def _stored(name: str | os.PathLike[str], settings: Settings) -> str | os.PathLike[str]:
    """The name of an address's package, which is pulled if it is not stored; any other name as it is."""
    if not isinstance(name, str) or not is_address(name):
        return name
    from modelkit.pack import pulling
    from modelkit.store.store import Store

    store = Store(settings.home)
    address = pulling.address_of(name, store)
    if address is None:
        return name
    return str(pulling.stored_or_pulled(address, store, Access(), outlines=True))


class _CallersProgress:
    """A caller's Progress."""

    def __init__(self, progress: object, callbacks: Callbacks) -> None:
        def step(name: str) -> Callable[..., Any]:
            return callbacks.heard(arguments.function(getattr(progress, name, None), f"progress.{name}"))

        self.begin, self.advance, self.finish = step("begin"), step("advance"), step("finish")
        self._say = step("say") if hasattr(progress, "say") else None

    def say(self, sentence: str) -> None:
        if self._say is not None:
            self._say(sentence)


def _with_limits(settings: Settings, memory: str | int | None, disk: str | int | None) -> Settings:
    if memory is not None:
        settings = replace(settings, cache_memory_bytes=read_size(memory, "cache_memory"))
    if disk is not None:
        settings = replace(settings, cache_disk_bytes=read_size(disk, "cache_disk"))
    return settings
