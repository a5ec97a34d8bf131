"""An engine whose decisions other machines follow answers as it does alone, and they keep what it keeps."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import crewing
from tests.support.ranks import Standing


@pytest.mark.parametrize(
    ("kind", "scene", "cut", "size"),
    [
        ("llama", "talk", "whole", 2),
        ("llama", "forget", "stages", 2),
        ("gemma3_text", "talk", "stages", 4),
        ("qwen3_5", "draft", "stages", 2),
        ("qwen3_5", "adapt", "stages", 2),
    ],
)
def test_others_do_what_one_decides(
    crews: Callable[[int], Standing], tmp_path: Path, kind: str, scene: str, cut: str, size: int
) -> None:
    first, *others = crews(size).do(tmp_path, crewing.__name__, "played", kind, scene, cut)
    assert first["said"] == first["expected"]
    mine = first["kept"]
    assert len(mine["pages"]) > 2
    for other in others:
        assert other["pages"] == mine["pages"]
        assert other["bytes"] == mine["bytes"]
        assert (other["digest"] == mine["digest"]) == (cut == "whole")
