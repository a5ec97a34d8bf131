"""An engine whose decisions other machines follow answers as it does alone, and they keep what it keeps."""

from pathlib import Path

import pytest

from tests.support import ranks

CREWING = "tests.support.crewing"


@pytest.mark.parametrize(
    ("kind", "scene", "cut", "size"),
    [
        ("llama", "talk", "whole", 3),
        ("llama", "forget", "stages", 2),
        ("gemma3_text", "talk", "stages", 4),
        ("qwen3_5", "draft", "stages", 2),
    ],
)
def test_others_do_what_one_decides(tmp_path: Path, kind: str, scene: str, cut: str, size: int) -> None:
    first, *others = ranks.run(tmp_path, size, CREWING, kind, scene, cut)
    assert first["said"] == first["expected"]
    mine = first["kept"]
    assert len(mine["pages"]) > 2
    for other in others:
        assert other["pages"] == mine["pages"]
        assert other["bytes"] == mine["bytes"]
        assert (other["digest"] == mine["digest"]) == (cut == "whole")
