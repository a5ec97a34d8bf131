"""Tensors of sizes that a family does not reckon with misfit, whatever its `adapt` does with them."""

from pathlib import Path

import pytest

from runtime.errors import WeightMismatch
from runtime.loading.load import load_model
from tests.support.checkpoints import write_checkpoint
from tests.support.parity import Reference


@pytest.mark.parametrize(
    ("name", "matrix"),
    [
        ("codegen", "transformer.h.0.attn.qkv_proj.weight"),
        ("persimmon", "model.layers.0.self_attn.query_key_value.weight"),
    ],
)
def test_rows_that_are_not_the_same_for_all_heads(name: str, matrix: str, tmp_path: Path) -> None:
    record = Reference(name).record
    write_checkpoint(tmp_path, record["config"], {**record["tensors"], matrix: (190, 64)})
    with pytest.raises(WeightMismatch, match="cannot take these tensors"):
        load_model(record["config"], [tmp_path / "model.safetensors"])
