"""Packed tensors say by their shapes how they are packed; what fits no module or no mode is named."""

import mlx.core as mx
import mlx.nn as nn
import pytest

from runtime.errors import UnsupportedModel, WeightMismatch
from runtime.quant import FORMATS
from runtime.weights.fit import fit
from runtime.weights.holding import Holding, fill
from runtime.weights.packing import Packing, stored_packing

NAMES = ("weight", "scales", "biases")
QUANTIZED = [row for row in FORMATS if row.quantized]


def triplet(width: int, row: Packing) -> dict[str, mx.array]:
    parts = mx.quantize(mx.random.normal((8, width)), row.group_size, row.bits, mode=row.mode)
    return dict(zip(NAMES, parts, strict=False))


@pytest.mark.parametrize("row", QUANTIZED, ids=lambda row: row.name)
def test_every_format_is_told_by_its_shapes(row: Packing) -> None:
    parts = triplet(128, row)
    found = stored_packing(128, parts["weight"], parts["scales"], parts.get("biases"))
    assert found == Packing(row.bits, row.group_size, row.mode)


class Two(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.a = nn.Linear(width, 8, bias=False)
        self.b = nn.Linear(width, 8, bias=False)


def test_modules_may_be_packed_each_in_its_own_way_whatever_the_config_calls_them() -> None:
    own = {"a": Packing(8, 32, "affine"), "b": Packing(4, 64, "affine")}
    tensors = {f"{name}.{leaf}": x for name, how in own.items() for leaf, x in triplet(64, how).items()}
    config = {"quantization": {"bits": 4, "group_size": 64, "wrapper.a": {"bits": 8, "group_size": 32}}}
    network = Two()
    fit(network, tensors, config)
    fill(network, tensors, Holding())
    assert (network.a.bits, network.b.bits) == (8, 4)  # pyright: ignore[reportAttributeAccessIssue] -- quantized now


def test_shapes_that_no_mode_packs_are_a_problem() -> None:
    parts = triplet(64, Packing(4, 64, "affine"))
    tensors = {f"a.{leaf}": x for leaf, x in parts.items()} | {"b.weight": mx.zeros((8, 64))}
    tensors["a.scales"] = mx.zeros((8, 3))
    with pytest.raises(WeightMismatch, match="no mode packs"):
        fit(Two(), tensors, {})


def test_a_mode_that_mlx_does_not_have_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="'novel'"):
        fit(Two(), {}, {"quantization": {"bits": 4, "group_size": 64, "mode": "novel"}})


def test_rounded_activations_are_refused() -> None:
    """As mlx-lm reads the config: matrices of nvfp4 and mxfp8 read what is rounded to their mode, too."""
    with pytest.raises(UnsupportedModel, match="quantize_activations"):
        fit(Two(), {}, {"quantize_activations": True})


@pytest.mark.parametrize("stored", [mx.bfloat16, mx.float16], ids=str)
@pytest.mark.parametrize("row", QUANTIZED, ids=lambda row: row.name)
def test_what_is_expanded_is_what_the_codes_stand_for(row: Packing, stored: mx.Dtype) -> None:
    matrix = mx.random.normal((8, 128), key=mx.random.key(0)).astype(stored)
    parts = dict(zip(NAMES, mx.quantize(matrix, row.group_size, row.bits, mode=row.mode), strict=False))
    tensors = {f"a.{leaf}": x for leaf, x in parts.items()} | {"b.weight": mx.zeros((8, 128))}
    network = Two(128)
    fit(network, dict(tensors), {})
    fill(network, tensors, Holding(mx.float32, expands=lambda _module: True))
    got, how = network.a.weight, {"group_size": row.group_size, "bits": row.bits, "mode": row.mode}
    assert got.dtype == mx.float32
    if row.mode == "affine":
        wide = [parts[name].astype(mx.float32) for name in ("scales", "biases")]
        assert mx.array_equal(got, mx.dequantize(parts["weight"], *wide, **how))
        assert row.bits <= 2 or not mx.array_equal(got, got.astype(stored).astype(mx.float32))
    else:
        assert mx.array_equal(got, mx.dequantize(parts["weight"], parts["scales"], **how).astype(mx.float32))


def test_what_a_family_keeps_is_widened_and_never_narrowed() -> None:
    def filled(stored: mx.Dtype, dtype: mx.Dtype) -> mx.Dtype:
        network, tensors = Two(), {f"{name}.weight": mx.zeros((8, 64), stored) for name in "ab"}
        fill(network, tensors, Holding(dtype, keeps=lambda name: name.startswith("a.")))
        return network.a.weight.dtype

    assert filled(mx.bfloat16, mx.float32) == mx.float32
    assert filled(mx.float32, mx.bfloat16) == mx.float32
