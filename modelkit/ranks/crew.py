"""The ranks that this process is one of. Rank 0 loads models and leads; the others wait for what it wants.

    load     open the package, agree on what it is, plan, read the own share, compute as rank 0 decides
    examine  say which packages are here, and how fast links are
    quit     end

A process is of one crew at most, for as long as it lives: MLX has one group of ranks per process.
"""

import atexit
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx

from modelkit.attached import contents, held_bytes
from modelkit.errors import Busy, LoadError, ModelkitError
from modelkit.prefixes import prefix_folder
from modelkit.ranks.examining import digests, examined
from modelkit.ranks.facts import Facts, difference, exchanged, free_bytes, own_facts
from modelkit.ranks.present import be_of, present
from modelkit.ranks.spawn import Children
from modelkit.settings import Settings, rank_patience_s, surroundings
from runtime import cpu
from runtime.cache.page_folder import PrefixFolder
from runtime.cpu.threads import Threads, most_threads
from runtime.device import device
from runtime.engine.options import Options
from runtime.errors import RankLost, RuntimeFault
from runtime.loaded import LoadedModel
from runtime.models import describe
from runtime.ranks.follow import Follower
from runtime.ranks.group import Group
from runtime.ranks.lead import Leading
from runtime.ranks.parts import Remembered, parts_of
from runtime.ranks.plan import Host, Plan, decide
from runtime.records import dataclass
from runtime.speculate.pair import runs_inside

if TYPE_CHECKING:
    from modelkit.opening.read import Opened

_LOADING_S = 3600.0
"""How long reading weights may take on any machine."""
_LEAVING_S = 5.0
"""How long to wait for a model that is being closed."""
_MEETING_S = 60.0
"""How long others may take to start, at the least."""
_VERSIONS = ("modelkit", "mlx")

Read = Callable[["Opened", Plan, Group], LoadedModel]
"""Reads this rank's share of what was opened."""


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


class Crew:
    """Made by `join` and `gather`."""

    def __init__(self, group: Group, children: Children | None = None) -> None:
        self._group, self._children = group, children
        self._free = threading.Lock()
        self._facts = exchanged(group, own_facts())
        if children is not None:
            children.met()
        differs = difference(self._facts, _VERSIONS)
        if differs is not None:
            raise LoadError(
                f"these machines cannot run a model together: {differs}",
                hint="Install the same versions on all of them.",
            )
        if group.rank == 0:
            atexit.register(self._quit)

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def size(self) -> int:
        return self._group.size

    @property
    def free_bytes(self) -> int:
        """Of all machines together."""
        return sum(free_bytes(self._facts))

    def threads(self, wanted: int | None) -> int:
        """For this rank's products: an equal part of its machine's, where nothing is wanted."""
        here = self._facts[self.rank]["host"]
        return wanted or max(1, most_threads() // [facts["host"] for facts in self._facts].count(here))

    @staticmethod
    def check(opened: "Opened", *, drafts: bool) -> None:
        """Raise LoadError for what is only done on one machine. drafts: will its draft be used?"""
        described = describe(opened.inventory.config)
        if not described.writes:
            raise LoadError(f"{opened.label} makes embeddings, which several machines do not do together")
        if drafts and opened.draft is not None and runs_inside(describe(opened.draft.config)):
            raise LoadError(
                f"the draft of {opened.label} reads what is inside its target, of which machines have parts",
                hint="Run it with -p draft_num_predict=0, or on one machine.",
            )

    @staticmethod
    def job(opened: "Opened", options: Options, shards: int) -> Job:
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
            package=opened.package,
            added=added,
            disk_bytes=0 if folder is None else folder.limit_bytes,
        )

    def part(self, shards: int) -> str:
        """What tells this rank's pages on disk from others'. Which layers it has, they say themselves."""
        return f"rank {self.rank} of {self.size}, {shards} a stage"

    def share(self, opened: "Opened", job: Job, home: Path, read: Read) -> LoadedModel:
        """Rank 0: load the model on all ranks, and give its own share. home: where its package is. Raises
        LoadError where some rank cannot, or has another package, and Busy where another model runs.
        """
        if not self._free.acquire(timeout=_LEAVING_S):
            raise Busy(
                f"these {self.size} ranks run another model, and run one at a time",
                waiting=0,
                hint="Close that one first: `modelkit stop` has a server do so.",
            )
        try:
            self._group.tell(json.dumps({"do": "load", **asdict(job)}).encode())
            notes = self._brought(job, home)
            share = self._loaded(opened, None, job, read)
            return replace(share, notes=(*notes, *share.notes))
        except BaseException:
            self._free.release()
            raise

    def examine(self, home: Path) -> list[Facts]:
        """Rank 0: what each rank has, and how fast the links between them are."""
        packages = digests(home)
        self._group.tell(json.dumps({"do": "examine", "packages": packages}).encode())
        return examined(self._group, packages, home)

    def lead(self) -> Leading:
        """For the engine of the next model."""
        return Leading(self._group, self._free.release)

    def follow(self, settings: Settings, read: Read) -> None:
        """The others: do what rank 0 wants until it ends. Raises RankLost where it is gone."""
        cpu.bind_blas()
        while True:
            said = json.loads(self._group.hear(within_s=None))
            do = said.pop("do")
            if do == "quit":
                return
            if do == "examine":
                examined(self._group, said["packages"], settings.home)
                continue
            with suppress(LoadError):  # rank 0 says it
                self._follow(Job(**said), settings, read)

    def _follow(self, job: Job, settings: Settings, read: Read) -> None:
        """One model, from its start to its end."""
        from modelkit.opening.read import open_model

        self._brought(job, settings.home)
        with ExitStack() as stack:
            opened, problem = None, None
            try:
                opened = stack.enter_context(open_model(job.label, settings, [*map(Path, job.added)]))
            except ModelkitError as error:
                problem = str(error)
            share = self._loaded(opened, problem, job, read)
        Threads(self.threads(job.threads)).before_step(time.monotonic())
        folder = None
        if job.disk_bytes and opened is not None and opened.digest is not None:
            path, part = prefix_folder(settings.home), self.part(job.shards)
            folder = PrefixFolder(path, opened.digest, job.disk_bytes, part)
        Follower(self._group, share, folder).run()

    def _brought(self, job: Job, home: Path) -> tuple[str, ...]:
        """Have every rank hold the package; what the user is told of it."""
        if job.package is None:
            return ()
        from modelkit.ranks.bringing import bring

        hosts = [facts["host"] for facts in self._facts]
        return bring(self._group, home, job.label, job.package, hosts)

    def _loaded(self, opened: "Opened | None", problem: str | None, job: Job, read: Read) -> LoadedModel:
        """What all ranks do at the same time. problem: why nothing was opened here."""
        package = None if opened is None else identity(opened)
        adapters = None if opened is None else contents(opened.adapters)
        mine = {**own_facts(), "problem": problem, "package": package, "adapters": adapters}
        facts = self._agree(mine, ("package", "adapters"))
        plan = None
        assert opened is not None
        try:
            plan = plan_of(opened, job, facts)
        except (RuntimeFault, ModelkitError) as fault:
            problem = str(fault)
        self._agree({"problem": problem, "plan": plan and plan.digest}, ("plan",))
        assert plan is not None
        try:
            share = read(opened, plan, self._group)
        except RankLost:
            raise
        except Exception as fault:
            with suppress(LoadError):  # what happened here says more
                self._agree({"problem": str(fault) or type(fault).__name__}, (), within_s=_LOADING_S)
            if self.rank > 0:
                raise LoadError(str(fault)) from fault
            raise
        self._agree({}, (), within_s=_LOADING_S)
        return share

    def _agree(self, mine: Facts, names: tuple[str, ...], within_s: float | None = None) -> list[Facts]:
        """Raise LoadError, on all ranks, where one has a problem or another value."""
        facts = exchanged(self._group, {"host": self._facts[self.rank]["host"], **mine}, within_s)
        differs = difference(facts, names)
        if differs is not None:
            raise LoadError(f"it cannot be run on {self.size} ranks: {differs}")
        return facts

    def _quit(self) -> None:
        """At the end of this process."""
        if not self._group.lost:
            self._group.tell(json.dumps({"do": "quit"}).encode())
            mx.synchronize()
        if self._children is not None:
            self._children.close(at_once=self._group.lost)
        if self._group.lost:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)  # MLX would wait for what is in flight


def identity(opened: "Opened") -> str:
    """What tells the weights of one package or folder from those of another, by its headers."""
    if opened.package is not None:
        return opened.package
    tensors = sorted((name, one.dtype, list(one.shape)) for name, one in opened.inventory.tensors.items())
    said = json.dumps([dict(opened.inventory.config), tensors], sort_keys=True)
    return "sha256:" + hashlib.sha256(said.encode()).hexdigest()


def plan_of(opened: "Opened", job: Job, facts: list[Facts]) -> Plan:
    """The same on all ranks, as they know the same. Raises CannotCut, TooLarge and their kin."""
    tensors = {name: (one.dtype, one.shape) for name, one in opened.inventory.tensors.items()}
    memory = Remembered(job.tokens, job.sequences, job.kept_format)
    parts = parts_of(opened.inventory.config, tensors, shards=job.shards, memory=memory, on=device())
    beside = held_bytes(opened.adapters, 4)
    free = [max(room - beside, 1) if room else 0 for room in free_bytes(facts)]
    plan = decide(parts, [Host(one["host"], room) for one, room in zip(facts, free, strict=True)])
    plan.check_room()
    return plan


def join() -> Crew:
    """The crew that a launcher has started this process for. It waits for the others to come."""
    return present() or _join(None)


def gather(size: int, home: Path) -> Crew:
    """A crew of this process, which leads, and others that are started here. home: of their store."""
    crew = present()
    if crew is None:
        return _join(Children(size, home))
    if crew.size != size:
        raise LoadError(
            f"this process is one of {crew.size} ranks, and cannot be one of {size}",
            hint="Start another process.",
        )
    return crew


def _join(children: Children | None) -> Crew:
    try:
        return be_of(Crew(_met(children), children))
    except BaseException:
        if children is not None:
            children.close(at_once=True)
        raise


def _met(children: Children | None) -> Group:
    """MLX waits without end for whoever does not come, so it does that on a thread of its own."""
    patience_s = rank_patience_s()
    met: list[Group | Exception] = []

    def meet() -> None:
        try:
            met.append(Group.join("ring" if children else "any", patience_s))
        except Exception as error:  # noqa: BLE001 -- raised below
            met.append(error)

    with surroundings({} if children is None else children.own):
        thread = threading.Thread(target=meet, name="modelkit-meet", daemon=True)
        thread.start()
        until_s = time.monotonic() + max(patience_s, _MEETING_S)
        while thread.is_alive() and time.monotonic() < until_s:
            thread.join(0.05)
            if children is not None:
                children.check()
    if not met:
        raise RankLost(f"not all have come within {max(patience_s, _MEETING_S):g} s")
    if isinstance(met[0], Exception):
        raise RankLost(str(met[0])) from met[0]
    return met[0]
