"""Whole engines on several ranks, with guesses, prefixes, batches, adapters and rows that leave: what is said
is what one process says, or in shards what they say to one request at a time.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import mixing
from tests.support.ranks import Standing

Crews = Callable[[int], Standing]

ALL: dict[str, Any] = {
    "options": {
        "context_length": 128,
        "budget_tokens": 16,
        "max_rows": 3,
        "prefix_bytes": 1 << 20,
        "kv_format": None,
        "mark_spacing": 1,
    },
    "form": "floats",
    "guesses": True,
    "adapted": False,
}
# Layers that read each other's memory stay together in a stage, and no draft reads memory that is shared;
# some have three layers, too few for four stages.
REFUSED = {
    (2, "stages"): set[str](),
    (2, "shards"): {mixing.ASSISTED},
    (4, "shards"): {mixing.ASSISTED},
    (4, "stages"): {
        *("gemma4_text", mixing.ASSISTED, *mixing.READERS),
        *("deepseek_v3", "kimi_linear", "falcon_h1", "iquest_loop", "falcon_mamba", "rwkv7", "ouro"),
    },
}


def run(crew: Standing, folder: Path, seed: int, **changes: Any) -> str:
    """What is wrong."""
    return crew.do(folder, mixing.__name__, "mixed", seed, changes)[0][1]


@pytest.mark.parametrize(("size", "cut"), REFUSED)
def test_guesses_and_prefixes_change_nothing(crews: Crews, tmp_path: Path, size: int, cut: str) -> None:
    """Every family in both cuts, in one of them on two ranks and in the other one on four."""
    first = (size == 2) == (cut == "stages")
    all_are_as_alone_or_refused(crews(size), tmp_path, size, cut, mixing.FAMILIES[not first :: 2])


@pytest.mark.slow
@pytest.mark.parametrize(("size", "cut"), REFUSED)
def test_they_change_nothing_in_any_family(crews: Crews, tmp_path: Path, size: int, cut: str) -> None:
    all_are_as_alone_or_refused(crews(size), tmp_path, size, cut, mixing.FAMILIES)


def all_are_as_alone_or_refused(
    crew: Standing, folder: Path, size: int, cut: str, families: Sequence[str]
) -> None:
    found = {family: run(crew, folder, 7, **ALL, family=family, cut=cut) for family in families}
    refused = {family for family, wrong in found.items() if wrong.startswith("refused: ")}
    assert {family: wrong for family, wrong in found.items() if wrong and family not in refused} == {}
    assert refused == REFUSED[size, cut] & {*families}


@pytest.mark.parametrize(("size", "cut"), [(2, "stages"), (2, "shards"), (4, "pairs"), (4, "shards")])
def test_k_quants_of_every_kind_are_cut(crews: Crews, tmp_path: Path, size: int, cut: str) -> None:
    changes = {**ALL, "form": "k", "family": "llama", "cut": cut, "adapted": True}
    assert [run(crews(size), tmp_path, seed, **changes) for seed in (3, 4)] == [""] * 2


@pytest.mark.parametrize("size", [2, 4])
def test_rows_that_decode_in_parts_change_nothing(crews: Crews, tmp_path: Path, size: int) -> None:
    """Nobody guesses, so stages take turns; of so many rows some leave, and others come in their places."""
    options = {**ALL["options"], "max_rows": 5, "budget_tokens": 7}
    changes = {**ALL, "options": options, "guesses": False, "adapted": True, "cut": "stages"}
    families = ("llama", "gemma3_text", "qwen3_next", "nemotron_h", *(("t5",) if size == 2 else ()))
    found = [
        run(crews(size), tmp_path, seed, **changes, family=family) for family in families for seed in (11, 12)
    ]
    assert found == [""] * len(found)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_many_random_runs(crews: Crews, tmp_path: Path, size: int) -> None:
    found = {seed: run(crews(size), tmp_path, seed) for seed in range(250)}
    wrong = {seed: one for seed, one in found.items() if one and not one.startswith("refused: ")}
    assert wrong == {}
