"""A model that several ranks are to run: what they are told of it, what they compare, and who gets what.

Nothing here talks to anybody, and nothing is read but headers.
"""

import hashlib
import json
from typing import TYPE_CHECKING

from modelkit.errors import LoadError
from modelkit.ranks.facts import Facts, free_bytes
from modelkit.requests.attached import held_bytes, shapes
from runtime.device import device
from runtime.engine.options import Options
from runtime.models import describe
from runtime.ranks.parts import Remembered, parts_of
from runtime.ranks.plan import Host, Plan, decide
from runtime.records import dataclass
from runtime.speculate.assistant import is_assistant, layers_read

if TYPE_CHECKING:
    from modelkit.opening.opened import Opened


@dataclass(frozen=True, slots=True)
class Job:
    """A model to run."""

    label: str
    """As it is opened."""
    shards: int
    """Among how many ranks each stage is shared."""
    tokens: int
    """Of a sequence, at most."""
    sequences: int
    kept_format: str | None
    threads: int | None
    """What was asked for; None: an equal part of each machine's."""
    package: str | None = None
    """Its digest; None for a folder, which each machine has to have."""
    added: tuple[str, ...] = ()
    """Paths of adapters that are not in the package, which each machine has to have."""
    disk_bytes: int = 0
    """What each may keep on disk of earlier prompts; 0: nothing."""
    in_slices: bool = False
    """May a rank that lacks its weights have slices of them?"""
    with_head: bool = False
    """Does rank 0 read the model's own draft head, too?"""
    copied: tuple[int, ...] = ()
    """Layers of others that rank 0 has besides its own."""


def job_of(
    opened: "Opened", options: Options, shards: int, *, with_head: bool, copied: frozenset[int]
) -> Job:
    """What the others are told of a model that is run so here."""
    tokens, kept_format, threads = options.context_length, options.kv_format, options.threads
    added = tuple(str(path.absolute()) for path in opened.added)
    folder = options.prefix_folder
    return Job(
        label=opened.label,
        shards=shards,
        tokens=tokens,
        sequences=options.max_rows,
        kept_format=kept_format,
        threads=threads,
        package=_package(opened),
        added=added,
        disk_bytes=0 if folder is None else folder.limit_bytes,
        in_slices=opened.package is not None and opened.metadata.provenance is not None,
        with_head=with_head,
        copied=tuple(sorted(copied)),
    )


def _package(opened: "Opened") -> str | None:
    """Its digest; of an outline that of what it is an outline of."""
    return opened.package if opened.outline is None else str(opened.outline.package)


def copied_layers(opened: "Opened", *, drafts: bool, shards: int) -> frozenset[int]:
    """Layers that rank 0 has besides its own, for a draft that reads what they remember. drafts: will it be
    used? Raises LoadError where they cannot be had.
    """
    draft = None if opened.draft is None or not drafts else describe(opened.draft.config)
    if draft is None or not is_assistant(draft):
        return frozenset()
    if shards > 1:
        raise LoadError(
            f"the draft of {opened.label} reads its target's layer memory, of which shards have parts",
            hint="Run it in stages (without --shards), or with -p draft_num_predict=0.",
        )
    return layers_read(draft, describe(opened.inventory.config))


def identity(opened: "Opened") -> str:
    """What tells the weights of one package or folder from those of another, by its headers."""
    package = _package(opened)
    if package is not None:
        return package
    tensors = sorted((name, one.dtype, list(one.shape)) for name, one in opened.inventory.tensors.items())
    said = json.dumps([dict(opened.inventory.config), tensors], sort_keys=True)
    return "sha256:" + hashlib.sha256(said.encode()).hexdigest()


def plan_of(opened: "Opened", job: Job, facts: list[Facts]) -> Plan:
    """The same on all ranks, as they know the same. Raises CannotCut, TooLarge and their kin."""
    tensors = {name: (one.dtype, one.shape) for name, one in opened.inventory.tensors.items()}
    memory = Remembered(job.tokens, job.sequences, job.kept_format)
    parts = parts_of(
        opened.inventory.config,
        tensors,
        shards=job.shards,
        memory=memory,
        on=device(),
        adapters=shapes(opened.adapters),
    )
    beside = held_bytes([one for one in opened.adapters if one.stored is None], 4)
    free = [max(room - beside, 1) if room else 0 for room in free_bytes(facts)]
    plan = decide(parts, [Host(one["host"], room) for one, room in zip(facts, free, strict=True)])
    plan.check_room()
    return plan
