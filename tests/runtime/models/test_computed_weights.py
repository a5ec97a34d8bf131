"""Matrices that a family computes from stored ones are float32 where everything is, and of the file's type
where products want that.
"""

from pathlib import Path

import mlx.core as mx
import pytest

from runtime.device import Device
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from tests.support.half import WIDE, Half
from tests.support.parity import Reference

FALCON = Half("falcon_h1", "bf16")
QUERIES = "model.layers.0.self_attn.q_proj.weight"


def converted(folder: Path, on: Device | None) -> LoadedModel:
    """As mlx-lm writes it: filters [C, k, 1], for which multipliers count as folded in."""
    tensors = {
        name: array.swapaxes(1, 2) if name.endswith("conv1d.weight") else array
        for name, array in FALCON.tensors().items()
    }
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    return load_model(Reference(FALCON.name).record["config"], [folder / "model.safetensors"], on=on)


@pytest.mark.parametrize(("on", "dtype"), [(WIDE, mx.float32), (None, mx.bfloat16)], ids=["wide", "own"])
def test_unfolded_rows_are_rounded_no_more_than_products_want(
    on: Device | None, dtype: mx.Dtype, tmp_path: Path
) -> None:
    model = converted(tmp_path, on)
    got = model.network.model.layers[0].self_attn.q_proj.weight
    by = model.described.config.times.attention_in
    assert by != 1
    assert got.dtype == dtype
    assert mx.array_equal(got, (FALCON.tensors()[QUERIES].astype(mx.float32) / by).astype(dtype))
