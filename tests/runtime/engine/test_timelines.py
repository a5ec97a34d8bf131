"""Random timelines: requests, cancels, branches, evictions, restarts, speculation, batches, full memory.

Every answer is that of a fresh single run without drafters and prefixes, and after every step of the engine
the invariants of rows, prefix stores and budget hold.
"""
# What holds inside between two steps is the claim.
# pyright: reportPrivateUsage=false

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.layout import sequence_bytes
from runtime.cache.memory import LayerMemory
from runtime.cache.page_folder import PrefixFolder
from runtime.engine.engine import Engine, Options
from runtime.engine.loop import Loop
from runtime.engine.places import Places
from runtime.engine.request import Request
from runtime.loaded import LoadedModel
from runtime.sampling.params import SamplingParams
from runtime.speculate import draft_model
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Drafter, Proposal, Rows
from runtime.speculate.ngram import NgramDrafter
from tests.support.drafting import Idle, always_drafting
from tests.support.engines import ids_of
from tests.support.invariants import check, check_store
from tests.support.parity import SPECIAL, Reference

# Full attention, a window, folds beside full attention, a sequence that is read again once it is long.
KINDS = [
    Reference("llama"),
    Reference("mistral_window"),
    Reference("qwen3_5"),
    Reference("longrope_phi3", SPECIAL),
]
LONGEST, MOST = 90, 20
FULL: list[int] = []
"""When memory was full: how many rows there were."""
SAMPLINGS = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=1.0, seed=7),
    SamplingParams(temperature=0.8, top_k=25, repeat_penalty=1.2, seed=3),
]


class Adversary(Idle):
    """Guesses what it likes, of any number, and now and then what was said before."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        tokens = self.rng.integers(0, 160, (len(rows), depth))
        return Proposal(
            mx.array(tokens, dtype=mx.int32), tuple(self.rng.integers(0, depth + 1, len(rows)).tolist())
        )


@dataclass
class World:
    """An engine, what was said so far, and a plain engine that knows the right answers."""

    kind: Reference
    folder: Path
    plain: Engine
    rng: np.random.Generator
    options: dict[str, Any]
    drafters: Sequence[str]
    history: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    seen: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        self.engine = self.start()

    def start(self) -> Engine:
        options = Options(context_length=160, budget_tokens=16, max_rows=3, mark_spacing=1, **self.options)
        return Engine(lambda: self.kind.load(self.folder), options, self.make)

    def make(self, _model: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        made: dict[str, Drafter] = {}
        for name in self.drafters:
            if name == "adversary":
                made[name] = Adversary()
            elif name == "lookup":
                made[name] = NgramDrafter(shortest=1)
            else:
                made[name] = ModelDrafter(self.kind.load(self.folder), budget=memory.budget)
        return made

    def live(self, turns: int) -> None:
        for _ in range(turns):
            self.ask()
            if self.rng.random() < 0.3:
                self.engine.close()
                self.engine = self.start()
            elif self.rng.random() < 0.1:
                self.engine.clear_prefixes()
        # A closed engine lets go of its stores, so they are held here.
        engine = self.engine
        stores = [engine._loop._prefixes.store, *engine._loop._drafting._standby._stores.values()]
        engine.close()
        for store in stores:
            if store is not None:
                check_store(store, 0)

    def ask(self) -> None:
        asked = [self.request() for _ in range(int(self.rng.integers(1, 6)))]
        leave = [int(self.rng.integers(0, 8)) if self.rng.random() < 0.3 else None for _ in asked]
        streams = [self.engine.submit(one) for one in asked]
        for number in self.rng.permutation(len(asked)):
            one, stream, least = asked[number], streams[number], leave[number]
            got: list[int] = []
            with stream:
                for delta in stream if least != 0 else ():
                    got.extend(delta.ids)
                    if least is not None and len(got) >= least:
                        break
            whole = ids_of(self.plain.submit(one))
            assert got == (whole if least is None else whole[: len(got)])
            self.note(stream.finish)
            self.history.append((*one.ids, *got))

    def note(self, finish: Any) -> None:
        self.seen[finish.reason] += 1
        self.seen["cached"] += finish.usage.cached_tokens
        self.seen["drafted"] += finish.usage.drafted_tokens
        self.seen["accepted"] += finish.usage.accepted_tokens

    def request(self) -> Request:
        """Something new, or a branch off something old."""
        past = self.history[int(self.rng.integers(len(self.history)))]
        past = past[: int(self.rng.integers(len(past) + 1))] if self.rng.random() < 0.5 else past
        fresh = tuple(int(token) for token in self.rng.integers(3, 7, self.rng.integers(1, 30)))
        ids = (past + fresh)[:LONGEST]
        marks = tuple(sorted(int(mark) for mark in self.rng.integers(0, LONGEST, self.rng.integers(0, 4))))
        sampling = SAMPLINGS[int(self.rng.integers(len(SAMPLINGS)))]
        stops = frozenset({int(self.rng.integers(3, 160))})
        drafts = [None, None, 0, 2][int(self.rng.integers(4))]
        count = int(self.rng.integers(0, MOST))
        return Request(ids, count, sampling, stops, draft_tokens=drafts, marks=marks)


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def plain(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Reference, Path, Engine]]:
    folder = tmp_path_factory.mktemp("model")
    engine = Engine(lambda: request.param.load(folder), Options(context_length=160))
    yield request.param, folder, engine
    engine.close()


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is checked; a failure goes to whoever has a row then. Drafts read in small bites."""
    work, make_way = Loop.work, Places.make_way

    def making_way(places: Places) -> bool:
        FULL.append(len(places.rows))
        return make_way(places)

    def checked(loop: Loop) -> bool:
        busy = work(loop)
        check(loop)
        return busy

    monkeypatch.setattr(Loop, "work", checked)
    monkeypatch.setattr(Places, "make_way", making_way)
    monkeypatch.setattr(draft_model, "CHUNK", 20)
    FULL.clear()
    always_drafting(monkeypatch, range(5))


def world(
    plain: tuple[Reference, Path, Engine], seed: int, drafters: Sequence[str] = (), **options: Any
) -> World:
    kind, folder, engine = plain
    return World(kind, folder, engine, np.random.default_rng(seed), options, drafters)


def row_bytes(engine: Engine) -> int:
    """Of one of the longest rows."""
    return sequence_bytes(engine.model.described.layout, LONGEST + MOST + 8, 4, slack=48)


def run(
    plain: tuple[Reference, Path, Engine], variant: str, folder: Path, seed: int, turns: int
) -> Counter[str]:
    page = row_bytes(plain[2])
    everything = ("draft", "adversary", "lookup")
    match variant:
        case "speculation":
            one = world(plain, seed, everything, prefix_bytes=1 << 30)
        case "evictions":
            one = world(plain, seed, ("draft",), prefix_bytes=5 * page)
        case "restarts":
            pages = PrefixFolder(folder, "sha256:aa", 20 * page)
            one = world(plain, seed, ("adversary",), prefix_bytes=4 * page, prefix_folder=pages)
        case "memory":
            one = world(plain, seed, everything, prefix_bytes=6 * page, cache_bytes=int(1.1 * page))
        case _:
            raise AssertionError(variant)
    one.live(turns)
    return one.seen


VARIANTS = ["speculation", "evictions", "restarts", "memory"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_answer_is_that_of_a_fresh_run(
    plain: tuple[Reference, Path, Engine], variant: str, tmp_path: Path
) -> None:
    seen = run(plain, variant, tmp_path, seed=1, turns=5)
    assert seen["length"] + seen["stop"] > 0
    assert seen["cached"] > 0
    assert seen["drafted"] > 0
    for other in range(2, 20):  # how many are there at once, and fill it, is a matter of who is quicker
        if FULL or variant != "memory":
            return
        run(plain, variant, tmp_path, seed=other, turns=5)
    raise AssertionError("memory never was full")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("variant", VARIANTS)
def test_long_timelines(
    plain: tuple[Reference, Path, Engine], variant: str, tmp_path: Path, seed: int
) -> None:
    run(plain, variant, tmp_path, seed, turns=40)
