"""Drafts that read their target's memory are refused where several machines have it."""

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.cache.build import build_memory
from runtime.errors import NotSupported
from runtime.speculate.pair import drafters_for
from tests.support.assistants import load_assistant


def test_an_assistant_reads_memory_that_others_have(tmp_path: Path) -> None:
    target, assistant = (load_assistant(name, tmp_path) for name in ("target", "plain"))
    memory = build_memory(target.described.layout)
    assert "draft" in drafters_for(target, assistant, memory)
    with pytest.raises(NotSupported, match="which several machines have"):
        drafters_for(replace(target, everywhere=target.described.layout), assistant, memory)
