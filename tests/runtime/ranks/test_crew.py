"""An engine whose decisions other machines follow answers as it does alone, and they keep what it keeps."""

from pathlib import Path

import pytest

from tests.support import ranks

CREWING = "tests.support.crewing"


@pytest.mark.parametrize(
    ("kind", "scene", "size"),
    [
        ("llama", "talk", 2),
        ("llama", "draft", 2),
        ("llama", "forget", 2),
        ("gemma3_text", "talk", 3),
        ("qwen3_5", "draft", 2),
    ],
)
def test_others_do_what_one_decides(tmp_path: Path, kind: str, scene: str, size: int) -> None:
    first, *others = ranks.run(tmp_path, size, CREWING, kind, scene)
    assert first["said"] == first["expected"]
    assert len(first["kept"]["pages"]) > 2
    for other in others:
        assert other == first["kept"]
