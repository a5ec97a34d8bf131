"""Drafts that read their target's memory, of which several machines have parts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.cache.build import build_memory
from runtime.errors import NotSupported
from runtime.speculate.pair import drafters_for
from tests.support import crewing
from tests.support.assistants import load_assistant
from tests.support.ranks import Standing


def test_an_assistant_reads_memory_that_others_have(tmp_path: Path) -> None:
    target, assistant = (load_assistant(name, tmp_path) for name in ("target", "plain"))
    layout = target.described.layout
    assert "draft" in drafters_for(target, assistant, build_memory(layout))
    with pytest.raises(NotSupported, match="of which machines have parts"):
        drafters_for(replace(target, everywhere=layout), assistant, build_memory(layout, elsewhere={2, 3}))


def test_an_assistant_reads_what_rank_0_computes_again(
    crews: Callable[[int], Standing], tmp_path: Path
) -> None:
    """Its guesses are those of one machine, of rows that share steps and prompts that are found again."""
    alone, together = crews(3).do(tmp_path, crewing.__name__, "assisted")[0]
    assert together[0] == alone[0]
    both = alone[1].keys() & together[1].keys()
    assert len(both) > 20
    assert {ids: together[1][ids] for ids in both} == {ids: alone[1][ids] for ids in both}


@pytest.mark.parametrize(("kind", "cut"), [("deepseek_v3", "stages"), ("glm4_moe_lite", "shards")])
def test_a_head_that_looks_ahead_begins_where_others_can(
    crews: Callable[[int], Standing], tmp_path: Path, kind: str, cut: str
) -> None:
    """A token before the end of what is known, where the others began at the end, and were lost."""
    alone, together = crews(2).do(tmp_path, crewing.__name__, "headed", kind, cut)[0]
    assert alone[-1] > 0, "no prefix was found"
    assert together[-1] == alone[-1]
    if cut == "stages":
        assert together == alone
