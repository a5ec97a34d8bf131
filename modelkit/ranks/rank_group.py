"""The ranks that this process is one of. Rank 0 loads models and leads; the others wait for what it wants.

    load     open the package, agree on what it is, plan, read the own share, compute as rank 0 decides
    examine  say which packages are here, and how fast links are
    quit     end

A process is of one group at most, for as long as it lives: MLX has one group of ranks per process.
"""

import atexit
import json
import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modelkit.errors import Busy, LoadError, ModelkitError
from modelkit.prefixes import prefix_folder
from modelkit.ranks.agreement import Read, read_together
from modelkit.ranks.diagnostics import digests, examined
from modelkit.ranks.facts import (
    Facts,
    Member,
    difference,
    exchanged,
    free_bytes,
    machines,
    own_facts,
    unlike,
)
from modelkit.ranks.job import Job
from modelkit.ranks.progress import OnBytes, Progress
from modelkit.ranks.spawn import Children
from modelkit.settings import Settings
from modelkit.temporary import put_away
from runtime import cpu
from runtime.cache.page_folder import PrefixFolder
from runtime.cpu.threads import Threads
from runtime.errors import RankLost, RuntimeFault
from runtime.loaded import LoadedModel
from runtime.nn.operations import ops
from runtime.ranks.follow import Follower
from runtime.ranks.group import Group
from runtime.ranks.lead import Leading

if TYPE_CHECKING:
    from modelkit.opening.opened import Opened
    from modelkit.ranks.outline import Outline
    from modelkit.ranks.package_transfer import Brought

_LEAVING_S = 5.0
"""How long to wait for a model that is being closed, and for ranks that end."""
_VERSIONS = ("modelkit", "mlx")


class RankGroup:
    """Made by `modelkit.ranks.rendezvous`."""

    def __init__(self, group: Group, children: Children | None = None) -> None:
        self._group, self._children = group, children
        self._free = threading.Lock()
        self.progress = Progress(group.size)
        problem = _settle()  # first: by what numbers are made depends on it
        nodes = f"{group.nodes}, {ops.numbers()}"
        self._facts = exchanged(group, {**own_facts(group), "nodes": nodes, "problem": problem})
        group.alike = difference(self._facts, ("nodes",)) is None
        if children is not None:
            children.met()
            group.who_ended = children.ended
        differs = difference(self._facts, _VERSIONS)
        if differs is not None:
            raise LoadError(
                f"these machines cannot run a model together: {differs}",
                hint=None
                if any(facts.get("problem") for facts in self._facts)
                else "Install the same versions on all of them.",
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
    def lost(self) -> bool:
        """Is somebody gone, so that these ranks answer no more? An engine that rests has not noticed."""
        return self._group.lost or self._group.links.broken()

    @property
    def free_bytes(self) -> int:
        """Of all machines together."""
        return sum(free_bytes(self._facts))

    @property
    def ranks_here(self) -> int:
        """How many share this rank's machine, itself included."""
        where = machines(self._facts)
        return where.count(where[self.rank])

    def part(self, shards: int) -> str:
        """What tells this rank's pages on disk from others'. Which layers it has, they say themselves."""
        return f"rank {self.rank} of {self.size}, {shards} a stage"

    @property
    def numbers(self) -> str:
        """By what they are made, on each rank: what one computes is made of what the others have."""
        return ", ".join(facts["numbers"] for facts in self._facts)

    def share(self, opened: "Opened", job: Job, home: Path, read: Read, on_bytes: OnBytes) -> LoadedModel:
        """Rank 0: load the model on all ranks, and give its own share. home: where its package is. on_bytes:
        called with the bytes that all of them have read. Raises LoadError where some rank cannot, or has
        another package, Busy where another model runs, and RankLost where somebody is gone: what ran then may
        hold the ranks for ever.
        """
        self._group.check()
        if not self._free.acquire(timeout=_LEAVING_S):
            raise Busy(
                f"these {self.size} ranks run another model, and run one at a time",
                waiting=0,
                hint="Close that one first: `modelkit stop` has a server do so.",
            )
        try:
            self._group.tell(json.dumps({"do": "load", **asdict(job)}).encode())
            with self._brought(job, home, opened.outline) as brought:
                share = read_together(self._member, opened, None, job, read, self.progress, on_bytes, brought)
            return replace(share, notes=(*unlike(self._facts), *brought.notes, *share.notes))
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
        return Leading(self._group, self._free.release, self.ranks_here)

    def follow(self, settings: Settings, read: Read) -> None:
        """The others: do what rank 0 wants until it ends. Raises RankLost where it is gone."""
        cpu.bind_blas()
        while True:
            said = json.loads(self._group.hear(within_s=None))
            do = said.pop("do")
            if do == "quit":
                self._group.flush()
                return
            if do == "examine":
                examined(self._group, said["packages"], settings.home)
                continue
            with suppress(LoadError):  # rank 0 says it
                self._follow(Job(**said), settings, read)

    def _follow(self, job: Job, settings: Settings, read: Read) -> None:
        """One model, from its start to its end."""
        from modelkit.opening.read import open_model, open_outline

        with ExitStack() as stack:
            brought = stack.enter_context(self._brought(job, settings.home))
            opened, problem, added = None, None, [*map(Path, job.added)]
            try:
                if brought.outline is None:
                    opened = stack.enter_context(open_model(job.label, settings, added))
                else:
                    opened = open_outline(brought.outline, job.label, added)
            except ModelkitError as error:
                problem = str(error)
            share = read_together(
                self._member, opened, problem, job, read, self.progress, lambda _: None, brought
            )
        Threads(job.threads, ranks=self.ranks_here).before_step(time.monotonic())
        folder = None
        if job.disk_bytes and opened is not None and opened.digest is not None:
            path, part = prefix_folder(settings.home), self.part(job.shards)
            folder = PrefixFolder(path, opened.digest, job.disk_bytes, part, self.numbers)
        Follower(self._group, share, folder, self.ranks_here).run()

    @property
    def _member(self) -> Member:
        return Member(self._group, self._facts[self.rank]["host"])

    @contextmanager
    def _brought(self, job: Job, home: Path, outline: "Outline | None" = None) -> "Generator[Brought]":
        """Have every rank hold the package, or its outline, within the block. outline: what rank 0 has."""
        from modelkit.ranks.package_transfer import Brought, bring

        if job.package is None:
            yield Brought()
            return
        hosts = [facts["host"] for facts in self._facts]
        with bring(
            self._group,
            home,
            job.label,
            job.package,
            hosts,
            self.progress,
            in_slices=job.in_slices,
            outline=outline,
        ) as brought:
            yield brought

    def _quit(self) -> None:
        """At the end of this process."""
        with suppress(RankLost), self._group.bounded():
            self._group.tell(json.dumps({"do": "quit"}).encode())
            self._group.flush()
        if not self._group.lost:  # the last rank, which is our neighbour, too, hears of it last
            self._group.links.wait_until_shut(_LEAVING_S)
        if self._children is not None:
            self._children.close(at_once=self._group.lost)
        if self._group.lost:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):  # its reader may be gone, too
                    stream.flush()
            put_away()
            os._exit(1)  # MLX would wait for what is in flight


def _settle() -> str | None:
    """Compute as this machine's surroundings say. What nobody can act on is returned: ranks above 0 have
    nobody to tell it to.
    """
    try:
        ops.use(Settings.from_environment().operations)
    except (ModelkitError, RuntimeFault) as error:
        return str(error)
    return None
