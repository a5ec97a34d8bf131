"""What checkpoints store input first is written as MLX makes it of the turned tensor, however it is cut; and
what has tiles in shares.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from modelkit.pack.planning import slabs
from modelkit.pack.writing import write
from modelkit.source.inventory import Inventory, read_inventory
from modelkit.source.tree import read_directory
from tests.modelkit.pack.writing.test_transform import convert, equal, random, relabel

Save = Callable[[Path, Mapping[str, mx.array], Mapping[str, Any]], Inventory]
AT = "model.layers.0."
LLAMA4 = {"model_type": "llama4_text", "num_hidden_layers": 1}
GPT_OSS = {"model_type": "gpt_oss", "num_hidden_layers": 1}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut every matrix into many blocks."""
    monkeypatch.setattr(write, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(slabs, "_PIECE_BYTES", 14)


def stacks(inner: int = 64) -> dict[str, mx.array]:
    """Gate beside up, and down, of 3 experts from 128 to `inner`."""
    return {"gate_up_proj": random((3, 128, 2 * inner)), "down_proj": random((3, inner, 128), seed=1)}


@pytest.mark.parametrize("wanted", ["q4", "q8"])
def test_llama4_experts_are_turned_and_quantized(tmp_path: Path, save: Save, wanted: str) -> None:
    home, source = f"{AT}feed_forward.experts", stacks()
    inventory = save(tmp_path, {f"{home}.{name}": array for name, array in source.items()}, LLAMA4)
    written = convert(inventory, wanted, tmp_path)
    gate, up = mx.split(source["gate_up_proj"].swapaxes(1, 2), 2, axis=1)
    down = source["down_proj"].swapaxes(1, 2)
    for name, part in (("gate_proj", gate), ("up_proj", up), ("down_proj", down)):
        bits = 8 if wanted == "q8" or name == "down_proj" else 4
        for leaf, array in zip(
            ("weight", "scales", "biases"), mx.quantize(part, group_size=64, bits=bits), strict=True
        ):
            assert equal(written[f"{home}.{name}.{leaf}"], array), (name, leaf)


def test_a_stack_that_cannot_be_quantized_is_turned_all_the_same(tmp_path: Path, save: Save) -> None:
    home, source = f"{AT}feed_forward.experts", stacks(inner=36)
    inventory = save(tmp_path, {f"{home}.{name}": array for name, array in source.items()}, LLAMA4)
    written = convert(inventory, "q8", tmp_path)
    assert equal(written[f"{home}.down_proj.weight"], source["down_proj"].swapaxes(1, 2))


@pytest.mark.parametrize(("wanted", "dtype"), [("bf16", mx.bfloat16), ("f32", mx.float32)])
def test_gpt_oss_floats_are_dealt_to_gate_and_up(
    tmp_path: Path, save: Save, wanted: str, dtype: mx.Dtype
) -> None:
    home, source = f"{AT}mlp.experts", stacks()
    bias = random((3, 128))
    arrays = {f"{home}.{name}": array for name, array in source.items()}
    inventory = save(tmp_path, {**arrays, f"{home}.gate_up_proj_bias": bias}, GPT_OSS)
    written = convert(inventory, wanted, tmp_path)
    for place, name in enumerate(("gate_proj", "up_proj")):
        part = source["gate_up_proj"][:, :, place::2].swapaxes(1, 2)
        assert equal(written[f"{home}.{name}.weight"], part.astype(dtype))
        assert equal(written[f"{home}.{name}.bias"], bias[:, place::2].astype(dtype))


def test_gpt2_matrices_are_turned_and_masks_left_out(tmp_path: Path, save: Save) -> None:
    matrix = random((64, 192), mx.float32)
    arrays = {"h.0.attn.c_attn.weight": matrix, "h.0.attn.bias": mx.ones((1, 1, 4, 4))}
    written = convert(save(tmp_path, arrays, {"model_type": "gpt2"}), "q8", tmp_path)
    assert set(written) == {f"model.h.0.attn.c_attn.{leaf}" for leaf in ("weight", "scales", "biases")}
    assert equal(written["model.h.0.attn.c_attn.weight"], mx.quantize(matrix.T, group_size=64, bits=8)[0])


@pytest.mark.parametrize(("hidden", "inner"), [(256, 128), (200, 136)], ids=["even", "ragged"])
def test_fp8_stacks_are_decoded_and_turned(tmp_path: Path, save: Save, hidden: int, inner: int) -> None:
    home, rng = f"{AT}mlp.experts", np.random.default_rng(0)
    arrays: dict[str, mx.array] = {}
    values: dict[str, np.ndarray] = {}
    for name, (rows, width) in {"gate_up_proj": (hidden, 2 * inner), "down_proj": (inner, hidden)}.items():
        codes = rng.integers(0, 0x7E, (2, rows, width), dtype=np.uint8)
        scales = rng.uniform(0.5, 2, (2, -(-rows // 128), -(-width // 128))).astype(np.float32)
        arrays |= {f"{home}.{name}": mx.array(codes), f"{home}.{name}_scale_inv": mx.array(scales)}
        spread = scales.repeat(128, axis=-2)[:, :rows].repeat(128, axis=-1)[..., :width]
        values[name] = (np.array(mx.from_fp8(mx.array(codes), mx.float32)) * spread).swapaxes(1, 2)
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    save(tmp_path, arrays, config)
    relabel(tmp_path / "model.safetensors")
    written = convert(read_inventory(read_directory(tmp_path), "fp8"), "bf16", tmp_path)
    expected = mx.array(values["gate_up_proj"][:, inner:]).astype(mx.bfloat16)
    assert equal(written[f"{AT}mlp.switch_mlp.up_proj.weight"], expected)
    expected = mx.array(values["down_proj"]).astype(mx.bfloat16)
    assert equal(written[f"{AT}mlp.switch_mlp.down_proj.weight"], expected)


@pytest.mark.parametrize("rows", [200, 256], ids=["ragged", "even"])
def test_shares_of_a_matrix_have_tiles_of_their_own(tmp_path: Path, save: Save, rows: int) -> None:
    """MiMo V2.5's queries, keys and values: the tiles of each share begin anew."""
    name, rng = f"{AT}self_attn.qkv_proj.weight", np.random.default_rng(0)
    codes = rng.integers(0, 0x7E, (2 * rows, 192), dtype=np.uint8)
    scales = rng.uniform(0.5, 2, (4, 2)).astype(np.float32)
    shares = np.split(scales.repeat(128, axis=0), 2)
    spread = np.concatenate([share[:rows] for share in shares]).repeat(128, axis=1)[:, :192]
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    layout = {"attention_projection_layout": "fused_qkv", "num_key_value_heads": 2}
    config = {**layout, "quantization_config": fp8}
    save(tmp_path, {name: mx.array(codes), f"{name}_scale_inv": mx.array(scales)}, config)
    relabel(tmp_path / "model.safetensors")
    written = convert(read_inventory(read_directory(tmp_path), "fp8"), "bf16", tmp_path)
    expected = np.array(mx.from_fp8(mx.array(codes), mx.float32)) * spread
    assert equal(written[name], mx.array(expected).astype(mx.bfloat16))
