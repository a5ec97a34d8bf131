"""LongRoPE in the engine: what is drawn after n tokens is what one pass over them says, on both sides of the
original length, whatever else the request asks for and whoever else is there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.cache.page_folder import PrefixFolder
from runtime.engine.engine import Engine
from runtime.engine.request import Request
from runtime.loaded import score
from runtime.nn.positions.rope_spec import long_after
from runtime.sampling.params import SamplingParams
from runtime.speculate.draft_model import ModelDrafter
from tests.support.drafting import Scripted, always_drafting, noise
from tests.support.engines import GREEDY, answer, ids_of, start
from tests.support.parity import SPECIAL, Reference

BAR = 1e-4  # of the spread of the logits: well conditioned networks

FAMILIES = [Reference("longrope_phi3", SPECIAL), Reference("longrope_llama", SPECIAL)]
PHI = FAMILIES[0]
BORDER = 24
"""Tokens after which their sequences are long."""
SYSTEM = tuple(int(token) for token in PHI.answers["ids"][:16])


@dataclass
class Both:
    stored: Engine
    plain: Engine

    def ask(self, ids: tuple[int, ...], count: int) -> int:
        """How many tokens were known; the answer is that of an engine that knows nothing."""
        one = Request(ids, count, GREEDY)
        stream, wanted = self.stored.submit(one), self.plain.submit(one)
        assert [delta.ids for delta in stream] == [delta.ids for delta in wanted]
        assert stream.finish is not None
        return stream.finish.usage.cached_tokens


def begin(folder: Path, reference: Reference = PHI, **options: Any) -> Engine:
    settings = {"context_length": 128, "max_rows": 3, "prefix_bytes": 1 << 30, **options}
    return start(folder, reference.load, **settings)


def prompt(reference: Reference, length: int) -> tuple[int, ...]:
    return tuple(int(token) for token in reference.answers["ids"][:length])


def wanted(reference: Reference, length: int) -> list[int]:
    """transformers' answer to the first tokens; no token of it had a close second."""
    return reference.answers[f"greedy_{length}"].tolist()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    pair = Both(begin(tmp_path / "model"), begin(tmp_path / "model", prefix_bytes=None))
    yield pair
    pair.stored.close()
    pair.plain.close()


def test_the_length_at_which_it_turns_is_read_from_the_config(both: Both) -> None:
    assert long_after(both.plain.model.described.config) == BORDER
    assert long_after(Reference("llama").record) is None


@pytest.mark.parametrize("chunk", [7, 64])
@pytest.mark.parametrize("length", [10, 24, 25, 44])
@pytest.mark.parametrize("reference", FAMILIES, ids=lambda one: one.name)
def test_logits_are_those_of_one_pass(reference: Reference, length: int, chunk: int, tmp_path: Path) -> None:
    got = score(reference.load(tmp_path), prompt(reference, length), chunk)
    far = np.abs(got[:, reference.answers["columns"]] - reference.answers[f"logits_{length}"]).max()
    assert far < BAR * reference.answers["std"]


@pytest.mark.parametrize("budget", [5, 64])
@pytest.mark.parametrize("reference", FAMILIES, ids=lambda one: one.name)
def test_answers_are_those_of_single_passes(reference: Reference, budget: int, tmp_path: Path) -> None:
    engine = begin(tmp_path, reference, budget_tokens=budget)
    for length in (10, 23, 24, 25):
        whole = wanted(reference, length)
        for count in (1, len(whole) // 2, len(whole)):
            assert answer(engine, Request(prompt(reference, length), count, GREEDY)) == whole[:count]
        assert answer(engine, Request(prompt(reference, length), 100, GREEDY))[: len(whole)] == whole
    engine.close()


def guess(ids: list[int], depth: int) -> list[int]:
    """What comes next, or something else."""
    known = [*prompt(PHI, 10), *PHI.answers["greedy_10"].tolist()]
    right = known[len(ids) : len(ids) + depth] if ids == known[: len(ids)] else []
    return right if len(ids) % 3 else noise(ids, depth)


@pytest.mark.parametrize("kind", ["scripted", "model"])
def test_drafts_across_the_border_change_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_drafting(monkeypatch, range(1, 7))
    make = {
        "scripted": lambda _model, _memory: {"it": Scripted(guess)},
        "model": lambda _model, memory: {"it": ModelDrafter(PHI.load(tmp_path), budget=memory.budget)},
    }[kind]
    engine = begin(tmp_path, drafters=make)
    whole = wanted(PHI, 10)
    stream = engine.submit(Request(prompt(PHI, 10), len(whole), GREEDY))
    assert ids_of(stream) == whole
    assert stream.finish is not None
    assert stream.finish.usage.accepted_tokens > len(whole) // (2 if kind == "model" else 4)
    engine.close()


def test_a_seed_says_the_same_whatever_may_follow(both: Both) -> None:
    drawn = SamplingParams(temperature=1.0, seed=3)
    ask = partial(Request, SYSTEM, sampling=drawn)
    answers = [
        ids_of(engine.submit(ask(max_tokens=count)))
        for engine in (both.plain, both.stored)
        for count in (4, 30, 100)
    ]
    assert all(one == answers[2][: len(one)] for one in answers)


def test_what_one_kind_left_is_of_no_use_to_the_other(both: Both) -> None:
    """An answer that crosses the border leaves its beginning as a short one, and all of it as a long one."""
    assert both.ask((*SYSTEM, 50), 4) == 0
    assert both.ask((*SYSTEM, *range(60, 80)), 4) == 0
    assert both.ask((*SYSTEM, 52), 20) == len(SYSTEM)
    assert both.ask((*SYSTEM, *range(80, 100)), 4) == len(SYSTEM)


def test_both_kinds_in_one_batch(both: Both) -> None:
    asked = [Request((*SYSTEM, *range(50, 50 + 3 * n)), 20, GREEDY) for n in range(6)]
    told = [[delta.ids for delta in both.plain.submit(one)] for one in asked]
    for _ in range(2):
        streams = [both.stored.submit(one) for one in asked]
        assert [[delta.ids for delta in stream] for stream in streams] == told


def test_one_that_waits_to_be_read_again_may_leave(both: Both) -> None:
    """A caller who leaves at the border leaves everything in order."""
    for least in range(6, 11):
        with both.stored.submit(Request(SYSTEM, 60, GREEDY)) as stream:
            for _ in zip(range(least), stream, strict=False):
                pass
    both.ask(SYSTEM, 40)


def test_the_kinds_are_told_apart_on_disk(tmp_path: Path) -> None:
    folder = PrefixFolder(tmp_path / "pages", "sha256:aa", 1 << 30)
    plain = begin(tmp_path / "model", prefix_bytes=None)
    short, long = (*SYSTEM, 60, 61), (*SYSTEM, *range(60, 80))
    for ids, known in ((long, 0), (short, 0), (long, len(long) - 1), (short, len(short) - 1)):
        pair = Both(begin(tmp_path / "model", prefix_folder=folder), plain)
        assert pair.ask(ids, 6) == known
        pair.stored.close()
    plain.close()


def test_entries_name_ids_and_kind(both: Both) -> None:
    both.ask(SYSTEM, 20)
    entries = both.stored.list_prefixes()
    assert sorted((entry.space, entry.keys[:3]) for entry in entries) == [
        ("", SYSTEM[:3]),
        ("long", SYSTEM[:3]),
    ]
