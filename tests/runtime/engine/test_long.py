"""LongRoPE in the engine: how long a request may become decides how it is read, whoever else is there."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runtime.cache.page_files import PrefixFolder
from runtime.engine.engine import Engine, Options
from runtime.engine.request import Request
from runtime.nn.rope_spec import long_after
from runtime.sampling.params import SamplingParams
from tests.support.parity import Reference

GREEDY = SamplingParams(temperature=0)
PHI = Reference("phi3_longrope_long")
TURN = 40
"""Tokens after which sequences of `CONFIG` are long."""
CONFIG: dict[str, Any] = {**PHI.record["config"], "original_max_position_embeddings": TURN}
SYSTEM = tuple(range(20, 44))


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


def start(folder: Path, prefix_bytes: int | None, **more: Any) -> Engine:
    options = Options(context_length=128, budget_tokens=16, max_rows=3, prefix_bytes=prefix_bytes, **more)
    return Engine(lambda: PHI.load(folder, CONFIG), options)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    pair = Both(start(tmp_path / "model", 1 << 30), start(tmp_path / "model", None))
    yield pair
    pair.stored.close()
    pair.plain.close()


def test_the_length_at_which_it_turns_is_read_from_the_config(both: Both) -> None:
    assert long_after(both.plain.model.described.config) == TURN
    assert long_after(Reference("llama").record) is None


def test_short_and_long_are_different_texts(both: Both) -> None:
    """Or the other tests here would say nothing."""
    short, long = (list(both.plain.submit(Request(SYSTEM, count, GREEDY))) for count in (10, 60))
    assert short != long[:10]


@pytest.mark.parametrize("counts", [(10, 60), (60, 10)], ids=["short first", "long first"])
def test_what_one_kind_left_is_of_no_use_to_the_other(both: Both, counts: tuple[int, int]) -> None:
    first, second = counts
    assert both.ask((*SYSTEM, 50), first) == 0
    assert both.ask((*SYSTEM, 51), second) == 0
    assert both.ask((*SYSTEM, 52), first) == len(SYSTEM)
    assert both.ask((*SYSTEM, 53), second) == len(SYSTEM)


def test_both_kinds_in_one_batch(both: Both) -> None:
    asked = [Request((*SYSTEM, 50 + n), 10 if n % 2 else 50 + n, GREEDY) for n in range(6)]
    wanted = [[delta.ids for delta in both.plain.submit(one)] for one in asked]
    for _ in range(2):
        streams = [both.stored.submit(one) for one in asked]
        assert [[delta.ids for delta in stream] for stream in streams] == wanted


def test_the_kinds_are_told_apart_on_disk(tmp_path: Path) -> None:
    folder = PrefixFolder(tmp_path / "pages", "sha256:aa", 1 << 30)
    plain = start(tmp_path / "model", None)
    for count, known in ((60, 0), (10, 0), (60, len(SYSTEM)), (10, len(SYSTEM))):
        pair = Both(start(tmp_path / "model", 1 << 30, prefix_folder=folder), plain)
        assert pair.ask((*SYSTEM, 50), count) == known
        pair.stored.close()
    plain.close()


def test_entries_name_ids_and_kind(both: Both) -> None:
    both.ask(SYSTEM, 60)
    both.ask(SYSTEM, 10)
    entries = both.stored.list_prefixes()
    assert sorted((entry.space, entry.keys[:3]) for entry in entries) == [
        ("", SYSTEM[:3]),
        ("long", SYSTEM[:3]),
    ]
