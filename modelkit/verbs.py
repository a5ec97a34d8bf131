"""What one does with modelkit from Python: `create` makes a package, `pull` fetches one, `load` opens one to
run.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from modelkit import arguments
from modelkit.address import is_address
from modelkit.arguments import given
from modelkit.collecting import uncollected
from modelkit.faults import Callbacks, translated
from modelkit.fetch.access import Access, Untold
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
    from modelkit.bars import Progress
    from modelkit.fetch.pull import Pulled
    from modelkit.fetch.registry.push import Pushed
    from modelkit.opening import Opened
    from modelkit.pack.build import Created


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

    name: what to call it; by default the name of the folder that holds the Modelfile. quantize,
    quantize_draft: words of QUANTIZE such as "q4" or "4.5 bits", for the target and for the draft, instead of
    what the Modelfile says. plain: every matrix alike; otherwise sensitive ones get more bits.
    fuse_adapters: what ADAPTER lines name becomes part of the weights, before they are quantized. offline:
    fetch nothing, even where FROM names a model of the hub. home: the folder of the store, instead of
    MODELKIT_HOME. progress: hears of bytes (`begin`, `advance`, `finish`), and if it has a method `say`, what
    is fetched. Raises ModelkitError; then nothing has changed.
    """
    from modelkit.chat.find import check_explicit
    from modelkit.pack import pulling
    from modelkit.pack.build import build
    from modelkit.store.name import Name, valid_name_from
    from modelkit.store.store import Store

    wanted = given(arguments.text, quantize, "quantize")
    wanted_draft = given(arguments.text, quantize_draft, "quantize_draft")
    alike, alone = arguments.flag(plain, "plain"), arguments.flag(offline, "offline")
    callbacks = Callbacks()
    told = None if progress is None else _Told(progress, callbacks)
    with translated(callbacks):
        if isinstance(modelfile, Modelfile):
            folder = arguments.absolute(modelfile.file).parent
            recipe = modelfile.recipe(folder, check_template=check_explicit)
        else:
            path = arguments.path(modelfile, "modelfile")
            folder = arguments.absolute(path).parent
            recipe = read_recipe(path, folder, check_template=check_explicit)
        named = given(arguments.text, name, "name")
        target = valid_name_from(folder.name) if named is None else Name.new(named)
        store = Store(settings_at(home).home)
        access = pulling.bring(recipe, store, Access(offline=alone, told=told or Untold()))
        return build(
            recipe,
            target,
            store,
            quantize=wanted,
            quantize_draft=wanted_draft,
            plain=alike,
            fuse_adapters=arguments.flag(fuse_adapters, "fuse_adapters"),
            progress=told,
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

    name: what to call it; by default as it is called where it comes from, `org/name`. insecure: a registry
    may be spoken to over plain http. outline: fetch all of a package in a registry but its weights, of which
    several machines then fetch their own parts when they run it. quantize, offline, home and progress: as for
    `create`. Raises ModelkitError; then no package has changed.
    """
    from modelkit.pack import pulling
    from modelkit.store.name import Name
    from modelkit.store.store import Store

    wanted = given(arguments.text, quantize, "quantize")
    alone, plain = arguments.flag(offline, "offline"), arguments.flag(insecure, "insecure")
    text = arguments.text(address, "address")
    callbacks = Callbacks()
    told = Untold() if progress is None else _Told(progress, callbacks)
    with translated(callbacks):
        named = given(arguments.text, name, "name")
        target = None if named is None else Name.new(named)
        found, store = pulling.read_wanted(text), Store(settings_at(home).home)
        access = Access(offline=alone, insecure=plain, told=told)
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

    insecure: allow plain http. Passwords are those of `modelkit login`, Podman and Docker. home, progress: as
    for `create`. Raises ModelkitError; what was sent before need not be sent again.
    """
    from modelkit.fetch.registry import push as registry
    from modelkit.store.store import Store

    plain = arguments.flag(insecure, "insecure")
    package, text = arguments.text(name, "name"), arguments.text(address, "address")
    callbacks = Callbacks()
    told = Untold() if progress is None else _Told(progress, callbacks)
    with translated(callbacks):
        there, store = registry.read_target(text), Store(settings_at(home).home)
        return registry.push(package, there, store, Access(insecure=plain, told=told))


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
    """Load a stored package by name, or a model directory by path. A model with a host in its name, such as
    "hf.co/org/name", is pulled first, unless an earlier pull of the same text has stored it.

    cache_memory, cache_disk: bytes for what is kept of earlier prompts, in memory and on disk, as a number or
    a text such as "2GB", instead of MODELKIT_CACHE_MEMORY and MODELKIT_CACHE_DISK; 0 keeps nothing there.
    Pages on disk are those of all packages together. max_waiting: how many requests may wait while others
    are answered; one more raises Busy. ranks: run it in so many processes on this machine, each with some
    of its layers; shards: so many of them share the same layers, each with a part of every one. A process
    keeps its ranks until it ends, for all models that it loads. adapters: paths of more adapters than a
    package has, as ADAPTER takes them; each goes by the name of its folder. on_memory: called before any
    weight is read with what the model will take, and a sentence where that is more than there is. on_weights:
    called, on a thread of the engine, with the bytes of each tensor once it is there. What either raises ends
    the load, and is raised here.
    parameters: any PARAMETER, as a default for all requests to this model; num_ctx, kv_format, num_batch,
    num_thread and num_parallel can be set here only. Use the result as a context manager, or close it. Raises
    ModelkitError.
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
            _stored(arguments.path(name, "name"), settings), settings, added, outlines=True
        ) as opened,  # ranks may have one
    ):
        _gather(ranks, opened, settings)
        model = Model(opened, wanted, settings, tell, count)
    model.load_s = time.monotonic() - started
    return model


def _gather(ranks: int | None, opened: "Opened", settings: Settings) -> None:
    """Start the others, for as long as this process lives: not for a model that cannot be cut so."""
    if ranks is None or arguments.whole(ranks, "ranks", 1, _MOST_RANKS) == 1:
        return
    from modelkit.ranks.hosts import hosts_here
    from modelkit.ranks.meeting import gather
    from modelkit.ranks.present import present
    from modelkit.showing.planning import plan_for
    from runtime.device import device

    if present() is None:
        plan_for(opened, hosts_here(ranks), shards=settings.shards, on=device())
    gather(ranks, settings.home)


def _stored(name: str | os.PathLike[str], settings: Settings) -> str | os.PathLike[str]:
    """The name of the package that an address stands for, which is pulled where it is not stored."""
    if not isinstance(name, str) or not is_address(name):
        return name
    from modelkit.pack import pulling
    from modelkit.store.store import Store

    store = Store(settings.home)
    address = pulling.address_of(name, store)
    if address is None:
        return name
    return str(pulling.stored_or_pulled(address, store, Access(), outlines=True))


class _Told:
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
