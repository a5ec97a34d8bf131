"""What is kept of earlier prompts: how much in memory, where on disk, and for which model.

Pages on disk belong to weights and a config, not to a package: packages that differ in system text, template
or parameters share them. Relies on `runtime.cache.page_folder` and `page_files` alone: listing pages needs no
MLX.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from modelkit import __version__
from modelkit.errors import ModelkitError
from modelkit.python_faults import os_reason
from modelkit.settings import Settings
from modelkit.store.manifest import Manifest
from modelkit.store.package import BrokenPackage, Package
from runtime.cache.page_files import BadPage, PageFacts, read_facts
from runtime.cache.page_folder import PageFile, PrefixFolder, abandoned_pages, list_pages, model_mark
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Keeping:
    """What may be kept of earlier prompts."""

    memory_bytes: int | None
    """Limit of what is kept in memory; None for nothing."""
    folder: PrefixFolder | None
    """Where on disk as well; None for nowhere."""
    notes: tuple[str, ...] = ()
    """Why there is less than was asked for."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A node of the tree of what is kept: the tokens [start, stop) of some sequences."""

    depth: int
    """So many nodes below the root."""
    start: int
    """In tokens."""
    stop: int
    """In tokens."""
    size_bytes: int
    used_at_s: float
    """Seconds since 1970."""
    ids: tuple[int, ...] = ()
    """Its tokens; () where they are not known."""
    kinds: tuple[str, ...] = ()
    """The kinds of layers that it holds something of; () where that is not known."""
    kv_format: str = ""
    """How keys and values are kept; "" where that is not known."""
    resumable: bool | None = None
    """Can a prompt go on from its stop? None: not known."""
    users: int = 0
    """Running requests that stand on it."""
    space: str = ""
    """The drafter whose own memory it is, the adapters of sequences that have some ("law=0.5+verse"), "long"
    for those that take LongRoPE's long factors, else "".
    """

    @property
    def tokens(self) -> int:
        return self.stop - self.start


def prefix_folder(home: Path) -> Path:
    return home / "cache" / "prefixes"


def model_digest(manifest: Manifest) -> str:
    """Of all that decides what a package's layers remember of given tokens: config and weights. What they
    remember with adapters is under keys that say which (`runtime.engine.adapters`).

    The program's own version is part of it: a later one may compute the same layers otherwise.
    """
    layers = [(layer.path, str(layer.blob.digest)) for layer in manifest.layers]
    deciding = sorted(layer for layer in layers if _decides(layer[0]))
    return "sha256:" + hashlib.sha256(json.dumps([__version__, deciding]).encode()).hexdigest()


def pages_by_model(home: Path) -> dict[str, list[PageFile]]:
    """All pages on disk by the mark of their model, least recently used first."""
    found: dict[str, list[PageFile]] = {}
    for page in list_pages(prefix_folder(home)):
        found.setdefault(page.model, []).append(page)
    return found


def remove_abandoned(home: Path, *, dry_run: bool = False) -> list[PageFile]:
    """Remove what killed runs left half written, and say what that was."""
    pages = abandoned_pages(prefix_folder(home))
    for page in pages:
        if not dry_run:
            page.path.unlink(missing_ok=True)
    return pages


def disk_tree(home: Path, package: Package) -> list[Prefix]:
    """What is kept on disk for a package: nodes of a tree, parents before children. A page whose beginning is
    gone stands on its own. Pages that cannot be read are left out; the model that meets one removes it.
    """
    mark, kinds = model_mark(model_digest(package.manifest)), _kinds(package)
    known: dict[Path, PageFacts] = {}
    below: dict[tuple[str, int], list[PageFile]] = {}
    pages = [page for page in list_pages(prefix_folder(home)) if page.model == mark and not page.partial]
    for page in pages:
        with suppress(OSError, BadPage):
            known[page.path] = facts = read_facts(page.path)
            below.setdefault((facts.before, page.start), []).append(page)
    ends = {(page.key, page.stop) for page in pages if page.path in known}
    tops = [page for start, some in below.items() if start not in ends for page in some]
    tree: list[Prefix] = []
    waiting = [(1, page) for page in tops]
    while waiting:
        depth, page = waiting.pop()
        tree.append(_prefix(depth, page, known[page.path], kinds))
        waiting.extend((depth + 1, child) for child in below.pop((page.key, page.stop), []))
    return tree


def _prefix(depth: int, page: PageFile, facts: PageFacts, kinds: Sequence[str]) -> Prefix:
    held = {kinds[layer] for layer in facts.layers if layer < len(kinds)}
    return Prefix(
        depth=depth,
        start=page.start,
        stop=page.stop,
        size_bytes=page.nbytes,
        used_at_s=page.used_at_s,
        ids=facts.ids,
        kinds=tuple(sorted(held)),
        kv_format=facts.kept,
    )


def _kinds(package: Package) -> list[str]:
    """The kind of each layer; [] where the config is one that nothing here runs."""
    from modelkit.source.strict_json import read_json
    from runtime.errors import UnsupportedModel
    from runtime.models import describe

    try:
        config = read_json(package.files["config.json"], nonfinite=True)
        return [spec.kind for spec in describe(config).layout]
    except (KeyError, ModelkitError, UnsupportedModel):
        return []


def names_by_mark(packages: Sequence[Package | BrokenPackage]) -> dict[str, list[str]]:
    """For each mark in page names, the packages that it belongs to, by their short names."""
    found: dict[str, list[str]] = {}
    for package in packages:
        if isinstance(package, Package):
            found.setdefault(model_mark(model_digest(package.manifest)), []).append(package.name.short)
    return found


def keeping(settings: Settings, label: str, digest: str | None, left_bytes: int) -> Keeping:
    """What the settings come to. digest: the model's, None where there is none. left_bytes: free memory that
    the weights leave.
    """
    given = settings.cache_memory_bytes
    memory = max(left_bytes, 0) // 8 if given is None else given
    problem = _problem(settings, digest, memory, given) if settings.cache_disk_bytes else None
    if problem is not None:
        return Keeping(memory or None, None, (f"{label}: prompts are not kept on disk: {problem}",))
    if not settings.cache_disk_bytes or digest is None:
        return Keeping(memory or None, None)
    from runtime.nn.operations import ops  # for who runs a model, which has it by then

    folder, limit_bytes = prefix_folder(settings.home), settings.cache_disk_bytes
    return Keeping(memory, PrefixFolder(folder, digest, limit_bytes, numbers=ops.numbers()))


def _problem(settings: Settings, digest: str | None, memory: int, given: int | None) -> str | None:
    """Why nothing can be kept on disk."""
    if digest is None:
        return "a folder has no digest that they could go by, a package has (`modelkit create`)"
    if not memory:
        asked = "the cache memory is 0" if given == 0 else "no memory is left for them"
        return f"{asked}, and they are used from memory"
    folder = prefix_folder(settings.home)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"{folder}: {os_reason(error)}"
    return None if os.access(folder, os.W_OK) else f"{folder} cannot be written"


def _decides(path: str) -> bool:
    return "/" not in path and (path == "config.json" or path.endswith(".safetensors"))
