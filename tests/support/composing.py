"""Random compositions of all that a request and an engine can be asked for (`Case`), each answer held against
the same asked alone: a fresh engine, one row at a time, without drafts, prefixes and limits.

`python -m tests.support.composing FIRST COUNT` tries many seeds.
"""
# What holds inside between two steps is looked at too.
# pyright: reportPrivateUsage=false

import itertools
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from runtime.cache.page_folder import PrefixFolder
from runtime.engine import loop as loop_room
from runtime.engine.adapters import AdapterSource
from runtime.engine.engine import Engine, Options
from runtime.engine.loop import Loop
from runtime.engine.pace import Pace
from runtime.engine.request import Delta
from runtime.engine.stream import Stream
from runtime.errors import CacheFull, NotNumbers, RuntimeFault
from runtime.speculate import block as block_room
from runtime.speculate import draft_model
from runtime.speculate import head as head_room
from tests.support.composed_cases import Case, Form, Job
from tests.support.composed_models import load, make_adapters, make_drafters
from tests.support.drafting import always_drafting
from tests.support.invariants import check, check_store

PATIENCE_S = 240


@dataclass(frozen=True)
class Said:
    """ids: tokens. details: of each its log-probabilities. end: a reason, or the name of an error."""

    ids: list[int]
    details: list[Any]
    end: str
    stop_id: int | None = None
    usage: Any = None

    @classmethod
    def by(cls, stream: Stream, before: Iterable[Delta] = ()) -> "Said":
        deltas, end = list(before), "unfinished"
        try:
            deltas += list(stream)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is compared
            end = type(error).__name__
        finish = stream.finish
        return cls(
            [token for delta in deltas for token in delta.ids],
            [one for delta in deltas for one in delta.logprobs],
            end if finish is None else finish.reason,
            None if finish is None else finish.stop_id,
            None if finish is None else finish.usage,
        )

    def differs(self, wanted: "Said", start: int = 0) -> bool:
        """From what comes behind `start` tokens of it."""
        own = self.ids, self.details, self.end, self.stop_id
        return own != (wanted.ids[start:], wanted.details[start:], wanted.end, wanted.stop_id)


def alone(case: Case, folder: Path, sources: list[AdapterSource]) -> list[Said]:
    free: dict[str, Any] = {
        "prefix_bytes": None,
        "max_rows": 1,
        "budget_tokens": 512,
        "cache_bytes": None,
        "threads": None,
    }
    engine = Engine(partial(load, case, folder), Options(**{**case.options, **free}), None, None, sources)
    try:
        return [Said.by(engine.submit(job.request)) for job in case.jobs]
    finally:
        engine.close()


class World:
    """Plays a case. Everything happens on the engine's thread, in front of a turn, so that nothing but the
    learner's clock can tell two runs apart.
    """

    def __init__(
        self, case: Case, wanted: Sequence[Said], folder: Path, sources: list[AdapterSource]
    ) -> None:
        self.case, self.folder, self.sources = case, folder, sources
        self.texts = [[*job.request.ids, *said.ids] for job, said in zip(case.jobs, wanted, strict=True)]
        self.streams = dict[int, Stream]()
        self.taken = dict[int, list[Delta]]()
        self.rest = dict[int, tuple[int, Stream]]()
        self.said = dict[int, Said]()
        self.resumed = dict[int, tuple[int, Said]]()
        self.turn, self.events = 0, list[tuple[int, int, str, int]]()
        self.engine = self.start()

    def start(self) -> Engine:
        case = self.case
        options = Options(**case.options)
        if case.on_disk:
            pages = PrefixFolder(self.folder / "pages", f"sha256:{case.family}", 40 << 20)
            options = replace(options, prefix_folder=pages)
        make = partial(make_drafters, case, self.texts, self.folder)
        return Engine(partial(load, case, self.folder), options, make, None, self.sources)

    def play(self) -> None:
        jobs = self.case.jobs
        for run in range(1 + max(job.run for job in jobs)):
            if run and any(deed[0] == run and deed[2] == "restart" for deed in self.case.deeds):
                self.close()
                self.engine = self.start()
            mine = [(place, job) for place, job in enumerate(jobs) if job.run == run]
            self.turn = 0
            self.events = sorted(
                [
                    *((job.turn, 0, "submit", place) for place, job in mine),
                    *((job.leaves, 2, "leave", place) for place, job in mine if job.leaves is not None),
                    *((turn, 1, what, amount) for of, turn, what, amount in self.case.deeds if of == run),
                ]
            )
            until = time.monotonic() + PATIENCE_S
            while self.events:
                self.engine.call(lambda _: None)  # makes a turn, whether there is work or none
                assert time.monotonic() < until, "it hangs"
            self.engine.call(lambda _: None)  # the last of them has happened, too
            for place, _ in mine:
                self.said[place] = Said.by(self.streams[place], self.taken.get(place, ()))
            self.resumed |= {place: (at, Said.by(stream)) for place, (at, stream) in self.rest.items()}
            self.rest.clear()
            self.engine.call(lambda _: self._idle())

    def _idle(self) -> None:
        loop = self.engine._loop
        assert not loop._places.rows
        assert loop.activity.running == loop.activity.waiting == 0
        check(loop)

    def close(self) -> None:
        loop = self.engine._loop
        stores = [loop._prefixes.store, *loop._drafting._standby._stores.values()]
        self.engine.close()
        for store in stores:
            if store is not None:
                check_store(store, 0)

    def happen(self, loop: Loop) -> None:
        self.turn += 1
        while self.events and self.events[0][0] < self.turn:
            _, _, what, which = self.events.pop(0)
            if what == "submit":
                self.streams[which] = self.engine.submit(self.case.jobs[which].request)
            elif what == "leave":
                self._leave(loop, which)
            elif what == "clear":
                loop.clear_prefixes()
            elif what == "keep":
                loop.limit_prefixes(which)
            elif what == "layers":
                loop.limit_layers(which)

    def _leave(self, loop: Loop, place: int) -> None:
        job, stream = self.case.jobs[place], self.streams[place]
        loop._notifier.notify()
        with suppress(RuntimeFault):
            self.taken[place] = stream.take()
        if stream.ended:
            return
        stream.cancel()
        request = job.request
        ids = tuple(token for delta in self.taken.get(place, ()) for token in delta.ids)
        if job.resumes and len(ids) < request.max_tokens:
            form = request.constraint
            more = replace(
                request,
                ids=request.ids + ids,
                max_tokens=request.max_tokens - len(ids),
                constraint=replace(form, first=ids) if isinstance(form, Form) else None,
            )
            self.rest[place] = len(ids), self.engine.submit(more)


def found_wrong(case: Case) -> list[str]:
    """What is not as it has to be, in words. Invariants that break end rows with an AssertionError."""
    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patched:
        folder = Path(place)
        sources = make_adapters(case, folder)
        wanted = alone(case, folder, sources)
        worlds: list[World] = []
        _patch(case, worlds, patched)
        world = World(case, wanted, folder, sources)
        worlds.append(world)
        try:
            world.play()
        finally:
            world.close()
        pairs = enumerate(zip(case.jobs, wanted, strict=True))
        return [wrong for place, (job, want) in pairs for wrong in _compared(case, world, place, job, want)]


def _patch(case: Case, worlds: Sequence[World], patched: pytest.MonkeyPatch) -> None:
    work = Loop.work

    def watched(loop: Loop) -> bool:
        for world in worlds:
            world.happen(loop)
        busy = work(loop)
        check(loop)
        return busy

    patched.setattr(Loop, "work", watched)
    patched.setattr(draft_model, "CHUNK", case.bite)
    patched.setattr(head_room, "FLUSH", case.bite)
    patched.setattr(block_room, "FLUSH", case.bite)
    if case.depths:
        always_drafting(patched, case.depths)
    if case.beside:
        counts = itertools.cycle(case.beside)
        patched.setattr(Pace, "beside", property(lambda _: next(counts)))
        patched.setattr(Pace, "gap_s", 0.0)  # rows are put back one layer at a time
        # Prompts of these cases are seldom long enough. Not at once again where there was no room.
        patched.setattr(loop_room, "passes", lambda _prompt, read, _unread: read != 0)  # pyright: ignore


def _compared(case: Case, world: World, place: int, job: Job, want: Said) -> Iterator[str]:
    got = world.said[place]
    at, rest = world.resumed.get(place, (0, None))
    full = CacheFull.__name__ if case.options["cache_bytes"] is not None else None
    free = job.request.sampling.rejecting and case.drafters
    if want.end == NotNumbers.__name__:
        if got.end not in (want.end, full, "cancelled", "unfinished") and not free:
            yield f"job {place}: {got} for {want}"
    elif free:
        if got.end not in ("length", "stop", "cancelled", "unfinished", full):
            yield f"job {place}, whose text may differ: {got}"
    else:
        begun = got.end == full or (job.leaves is not None and got.end in ("cancelled", "unfinished"))
        if got.ids != want.ids[: len(got.ids)] if begun else got.differs(want):
            yield f"job {place}: {got} for {want}"
        if rest is not None and rest.end != full and rest.differs(want, at):
            yield f"job {place}, resumed behind {at}: {rest} for {want}"
    usage = got.usage
    if usage is not None:
        if usage.accepted_tokens > usage.drafted_tokens or usage.cached_tokens > usage.prompt_tokens:
            yield f"job {place}: {usage}"
        if got.end != "cancelled" and usage.generated_tokens != len(got.ids):
            yield f"job {place}: {len(got.ids)} tokens and {usage}"


def main(first: int, count: int) -> None:
    for seed in range(first, first + count):
        try:
            wrong = "; ".join(found_wrong(Case.of(seed)))
        except Exception as error:  # noqa: BLE001 -- the next ones are tried all the same
            wrong = repr(error)
        print(seed, wrong[:2000] or "right", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
