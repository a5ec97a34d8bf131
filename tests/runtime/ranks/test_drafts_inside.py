"""Drafts that read inside their target are refused where several machines have it."""

from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest

from runtime.cache.build import build_memory
from runtime.errors import NotSupported
from runtime.models import describe
from runtime.models.taps import taps_of
from runtime.ranks.group import Group
from runtime.ranks.seat import Seat
from runtime.ranks.stage import become_stage
from runtime.ranks.trunk import chain_of
from runtime.speculate.pair import drafters_for
from tests.support.assistants import load_assistant
from tests.support.parity import Reference


def test_an_assistant_reads_memory_that_others_have(tmp_path: Path) -> None:
    target, assistant = (load_assistant(name, tmp_path) for name in ("target", "plain"))
    memory = build_memory(target.described.layout)
    assert "draft" in drafters_for(target, assistant, memory)
    with pytest.raises(NotSupported, match="which several machines have"):
        drafters_for(replace(target, everywhere=target.described.layout), assistant, memory)


def test_a_block_draft_reads_between_layers_that_others_have() -> None:
    described = describe(Reference("llama").record["config"])
    network = described.family.build(described.config)
    chain = chain_of(network, described.layout, described.name)
    become_stage(network, chain, 0, 2, Seat(Group.alone(), 1), mx.float32)
    trunk = taps_of(network)
    assert trunk is not None
    with pytest.raises(NotSupported, match="hidden states between layers that several machines have"):
        trunk.tap([0])
