"""An engine whose decisions other machines follow answers as it does alone, and they keep what it keeps."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import crewing
from tests.support.ranks import Standing

Crews = Callable[[int], Standing]


@pytest.mark.parametrize(
    ("kind", "scene", "cut", "size"),
    [
        ("llama", "talk", "whole", 2),
        ("llama", "forget", "stages", 2),
        ("gemma3_text", "talk", "stages", 4),
        ("qwen3_5", "draft", "stages", 2),
        ("qwen3_5", "adapt", "stages", 2),
        ("glm_moe_dsa_shared", "talk", "stages", 2),
        ("qwen4_exp", "talk", "stages", 2),
        ("kimi_k3", "talk", "stages", 2),
    ],
)
def test_others_do_what_one_decides(
    crews: Crews, tmp_path: Path, kind: str, scene: str, cut: str, size: int
) -> None:
    first, *others = crews(size).do(tmp_path, crewing.__name__, "played", kind, scene, cut)
    assert first["said"] == first["expected"]
    _check_kept(first["kept"], others, alike=cut == "whole")


@pytest.mark.parametrize(
    ("kind", "cut", "size", "count"),
    [
        ("llama", "stages", 2, 1),
        ("llama", "pairs", 4, 2),
        ("gemma4_text", "stages", 2, 2),
        ("deepseek_v4", "stages", 2, 2),
    ],
)
def test_who_reads_ids_is_told_them(
    crews: Crews, tmp_path: Path, kind: str, cut: str, size: int, count: int
) -> None:
    """Ranks that have the tables; all where layers are given more that is made of ids."""
    assert crews(size).do(tmp_path, crewing.__name__, "readers", kind, cut) == [count] * size


@pytest.mark.parametrize("cut", ["stages", "shards"])
def test_a_block_draft_reads_between_layers_that_others_have(crews: Crews, tmp_path: Path, cut: str) -> None:
    """Whatever of its guesses is kept, what is said is what is said without, and in stages as by one."""
    drafted, plain = (
        crews(2).do(tmp_path, crewing.__name__, "played", "qwen3", scene, cut)[0]
        for scene in ("block", "plain")
    )
    assert drafted["said"] == plain["said"]
    assert drafted["same"] or cut != "stages"


def test_stages_of_shards_answer_as_as_many_shards_do(crews: Crews, tmp_path: Path) -> None:
    first, *others = crews(4).do(tmp_path, crewing.__name__, "played", "qwen3_5", "brief", "pairs")
    alone, _ = crews(2).do(tmp_path, crewing.__name__, "played", "qwen3_5", "brief", "shards")
    assert first["said"] == alone["said"]
    assert first["said"][-1] > 0, "no prefix was found"
    _check_kept(first["kept"], others, alike=False)


@pytest.mark.parametrize(
    ("kind", "scene", "cut", "size"),
    [
        ("t5", "ask", "stages", 2),
        ("umt5", "ask", "stages", 3),
        ("t5gemma", "ask adapted", "stages", 2),
        ("t5gemma", "ask", "shards", 2),
        ("t5", "ask adapted", "pairs", 4),
    ],
)
def test_prompts_that_an_encoder_reads_are_read_by_all(
    crews: Crews, tmp_path: Path, kind: str, scene: str, cut: str, size: int
) -> None:
    """And kept and forgotten by all. Shards' scores are near those of one process."""
    first, *others = crews(size).do(tmp_path, crewing.__name__, "played", kind, scene, cut)
    assert first["said"] == first["expected"] or cut != "stages"
    scored, expected = (np.array(first[which][0]) for which in ("said", "expected"))
    assert np.abs(scored - expected).max() <= (0 if cut == "stages" else 1e-5 * np.abs(expected).max())
    assert len(first["kept"]["pages"]) == 2
    for other in others:
        assert other["pages"] == first["kept"]["pages"]
        assert other["memories"] == 1


@pytest.mark.parametrize(("kind", "cut"), [("qwen3_5", "stages"), ("llama", "shards"), ("kimi_k3", "shards")])
def test_texts_are_read_beside_what_is_answered(crews: Crews, tmp_path: Path, kind: str, cut: str) -> None:
    """And what is remembered of them is forgotten by all."""
    first, other = crews(2).do(tmp_path, crewing.__name__, "played", kind, "read", cut)
    assert first["said"][0][0] == first["expected"][0][0]
    said, expected = (np.concatenate([np.ravel(one) for one in first[w][1]]) for w in ("said", "expected"))
    assert np.abs(said - expected).max() <= (0 if cut == "stages" else 1e-5)
    assert other["memories"] == 1


def _check_kept(mine: Any, others: Sequence[Any], *, alike: bool) -> None:
    """alike: has each rank the same of it?"""
    assert len(mine["pages"]) > 2
    for other in others:
        assert other["pages"] == mine["pages"]
        assert other["bytes"] == mine["bytes"]
        assert (other["digest"] == mine["digest"]) == alike


@pytest.mark.parametrize(
    ("kind", "cut"), [("qwen3_5", "stages"), ("gemma3_text", "shards"), ("t5", "stages")]
)
def test_what_is_kept_on_disk_is_found_by_all_or_by_none(
    crews: Callable[[int], Standing], tmp_path: Path, kind: str, cut: str
) -> None:
    """The third time one has lost its part; then all have it again."""
    first, second = crews(2).do(tmp_path, crewing.__name__, "restarted", kind, cut)
    answers, cached = zip(*first, strict=True)
    assert len({*map(tuple, answers)}) == 1
    assert cached[0] == cached[2] == 0
    assert cached[1] == cached[3] > 9
    assert second[0] == second[1] == second[2] > 0
