"""The bytes written are those that MLX makes of whole tensors, however the rows are cut."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from modelkit.errors import MalformedFile, SourceError
from modelkit.modelfile.quantizing import parse_format
from modelkit.pack.planning.plan import plan
from modelkit.pack.writing import write
from modelkit.pack.writing.reader import Reader
from modelkit.pack.writing.transform import transform
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import recognise

Save = Callable[[Path, Mapping[str, mx.array], Mapping[str, Any]], Inventory]
AT = "model.layers.0."


def convert(inventory: Inventory, wanted: str | None, folder: Path) -> dict[str, mx.array]:
    """The arrays that a conversion writes, read back by MLX."""
    made = plan(inventory, recognise(inventory), parse_format(wanted) if wanted else None)
    loaded: dict[str, mx.array] = {}
    with Reader(inventory.weights) as reader:
        for file in made.files:
            sink = io.BytesIO()
            write.write_file(file, sink, reader, transform)
            target = folder / f"written-{file.path}"
            target.write_bytes(sink.getvalue())
            arrays = mx.load(str(target), format="safetensors")
            assert isinstance(arrays, dict)
            loaded.update(arrays)
    return loaded


def random(shape: tuple[int, ...], dtype: mx.Dtype = mx.bfloat16, seed: int = 0) -> mx.array:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return mx.array(values).astype(dtype)


def equal(one: mx.array, other: mx.array) -> bool:
    return one.dtype == other.dtype and bool(mx.array_equal(one, other).item())


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut every matrix into many blocks."""
    monkeypatch.setattr(write, "BLOCK_BYTES", 1000)


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16, mx.float32], ids=["bf16", "f16", "f32"])
@pytest.mark.parametrize(
    ("wanted", "mode", "bits", "group"),
    [
        *[(f"q{bits}", "affine", bits, 64) for bits in (2, 3, 4, 5, 6, 8)],
        *[("mxfp4", "mxfp4", 4, 32), ("mxfp8", "mxfp8", 8, 32), ("nvfp4", "nvfp4", 4, 16)],
    ],
)
def test_blocks_equal_the_whole(
    tmp_path: Path, save: Save, dtype: mx.Dtype, wanted: str, mode: str, bits: int, group: int
) -> None:
    weight = random((37, 128), dtype)
    inventory = save(tmp_path, {f"{AT}mlp.gate_proj.weight": weight}, {"num_hidden_layers": 1})
    written = convert(inventory, wanted, tmp_path)
    expected = mx.quantize(weight, group_size=group, bits=bits, mode=mode)
    for leaf, array in zip(("weight", "scales", "biases"), expected, strict=False):
        assert equal(written[f"{AT}mlp.gate_proj.{leaf}"], array), leaf


@pytest.mark.parametrize(("wanted", "dtype"), [("f16", mx.float16), ("f32", mx.float32)])
def test_a_cast_is_mlx_own(tmp_path: Path, save: Save, wanted: str, dtype: mx.Dtype) -> None:
    weight, norm = random((37, 128)), random((128,))
    inventory = save(tmp_path, {f"{AT}a.weight": weight, "model.norm.weight": norm}, {})
    written = convert(inventory, wanted, tmp_path)
    assert equal(written[f"{AT}a.weight"], weight.astype(dtype))
    assert equal(written["model.norm.weight"], norm.astype(dtype))


def test_experts_are_stacked_expert_by_expert(tmp_path: Path, save: Save) -> None:
    experts = [random((20, 64), seed=index) for index in range(11)]
    names = [f"{AT}mlp.experts.{index}.up_proj.weight" for index in range(11)]
    inventory = save(tmp_path, dict(zip(names, experts, strict=True)), {})
    written = convert(inventory, "q4", tmp_path)
    codes, scales, _ = mx.quantize(mx.stack(experts), group_size=64, bits=4)
    assert equal(written[f"{AT}mlp.switch_mlp.up_proj.weight"], codes)
    assert equal(written[f"{AT}mlp.switch_mlp.up_proj.scales"], scales)


def test_a_fused_stack_is_cut_before_it_is_quantized(tmp_path: Path, save: Save) -> None:
    fused = random((3, 40, 64))
    inventory = save(tmp_path, {f"{AT}mlp.experts.gate_up_proj": fused}, {})
    written = convert(inventory, "q8", tmp_path)
    gate, up = mx.split(fused, 2, axis=1)
    for name, part in (("gate_proj", gate), ("up_proj", up)):
        codes, *_ = mx.quantize(part, group_size=64, bits=8)
        assert equal(written[f"{AT}mlp.switch_mlp.{name}.weight"], codes)


def test_zero_sized_tensors_are_written(tmp_path: Path, save: Save) -> None:
    arrays = {"model.empty": mx.zeros((0, 4)), "model.norm.weight": random((128,))}
    written = convert(save(tmp_path, arrays, {}), "f16", tmp_path)
    assert written["model.empty"].shape == (0, 4)


# FP8: values are exact in bfloat16 until the scale, so the reference is plain numpy.


Block = tuple[int, int] | None


def save_fp8(
    folder: Path, save: Save, shape: tuple[int, ...], scale_dtype: mx.Dtype, block: Block = (128, 128)
) -> tuple[Inventory, mx.array]:
    """A checkpoint with one FP8 weight, and the bfloat16 values it stands for. block: what shares a scale, 0
    for all rows or columns; None: all of a matrix, in a shape without any.
    """
    rows, width = shape[-2:]
    height, breadth = (block or (0, 0))[0] or rows, (block or (0, 0))[1] or width
    codes = np.random.default_rng(0).integers(0, 0x7E, shape, dtype=np.uint8)
    tiles = (*shape[:-2], -(-rows // height), -(-width // breadth))
    rng = np.random.default_rng(1)
    powers = scale_dtype == mx.uint8
    stored = mx.array(rng.integers(120, 130, tiles) if powers else rng.uniform(0.5, 2, tiles)).astype(
        scale_dtype
    )
    scales = mx.power(2.0, stored.astype(mx.float32) - 127) if powers else stored
    name = f"{AT}self_attn.q_proj.weight" if len(shape) == 2 else f"{AT}mlp.experts.down_proj"
    stated = {"weight_block_size": list(block)} if block and all(block) else {}
    config = {"quantization_config": {"quant_method": "fp8", **stated}}
    stored = stored.reshape(shape[:-2]) if block is None else stored
    save(folder, {name: mx.array(codes), f"{name}_scale_inv": stored}, config)
    relabel(folder / "model.safetensors")
    from modelkit.source.inventory import read_inventory
    from modelkit.source.tree import read_directory

    wide = np.array(scales.astype(mx.float32))
    spread = wide.repeat(height, axis=-2)[..., :rows, :].repeat(breadth, axis=-1)[..., :width]
    values = np.array(mx.from_fp8(mx.array(codes), mx.float32)) * spread
    return read_inventory(read_directory(folder), "fp8"), mx.array(values).astype(mx.bfloat16)


def relabel(path: Path) -> None:
    """MLX writes FP8 codes as plain bytes; let the header call them what they are."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    entries = json.loads(data[8 : 8 + length])
    for name, entry in entries.items():
        if entry and entry.get("dtype") == "U8":
            entry["dtype"] = "F8_E8M0" if name.endswith("_scale_inv") else "F8_E4M3"
    header = json.dumps(entries).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])


@pytest.mark.parametrize("shape", [(256, 256), (200, 130), (3, 200, 192)], ids=["even", "ragged", "stack"])
@pytest.mark.parametrize("scale_dtype", [mx.float32, mx.bfloat16, mx.uint8], ids=["f32", "bf16", "e8m0"])
def test_fp8_is_decoded_tile_by_tile(
    tmp_path: Path, save: Save, shape: tuple[int, ...], scale_dtype: mx.Dtype
) -> None:
    inventory, values = save_fp8(tmp_path, save, shape, scale_dtype)
    (written,) = convert(inventory, "bf16", tmp_path).values()
    assert equal(written, values)


@pytest.mark.parametrize("shape", [(256, 256), (200, 130), (3, 200, 192)], ids=["even", "ragged", "stack"])
@pytest.mark.parametrize("block", [(1, 0), (0, 1), (0, 0), None, (64, 32), (1, 64)], ids=str)
def test_fp8_by_rows_in_other_blocks_and_as_a_whole_is_decoded(
    tmp_path: Path, save: Save, shape: tuple[int, ...], block: Block
) -> None:
    inventory, values = save_fp8(tmp_path, save, shape, mx.bfloat16, block)
    (written,) = convert(inventory, "bf16", tmp_path).values()
    assert equal(written, values)


def test_fp8_becomes_mxfp8(tmp_path: Path, save: Save) -> None:
    inventory, values = save_fp8(tmp_path, save, (200, 256), mx.float32)
    written = convert(inventory, None, tmp_path)
    for leaf, array in zip(
        ("weight", "scales"), mx.quantize(values, group_size=32, bits=8, mode="mxfp8"), strict=True
    ):
        assert equal(written[f"{AT}self_attn.q_proj.{leaf}"], array)


# GPT-OSS

FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def test_gpt_oss_blocks_keep_their_values(tmp_path: Path, save: Save) -> None:
    base, (experts, rows, groups) = f"{AT}mlp.experts.gate_up_proj", (2, 6, 3)
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (experts, rows, groups, 16), dtype=np.uint8)
    scales = rng.integers(120, 134, (experts, rows, groups), dtype=np.uint8)
    bias = random((experts, rows))
    arrays = {f"{base}_blocks": mx.array(blocks), f"{base}_scales": mx.array(scales), f"{base}_bias": bias}
    config = {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
    written = convert(save(tmp_path, arrays, config), None, tmp_path)
    pairs = np.stack([FP4[blocks & 15], FP4[blocks >> 4]], axis=-1)  # the low half comes first
    exponents = np.exp2(scales.astype(np.float32) - 127)[..., None]
    values = pairs.reshape(experts, rows, groups, 32) * exponents
    for place, name in enumerate(("gate_proj", "up_proj")):
        home = f"{AT}mlp.experts.{name}"
        got = mx.dequantize(
            written[f"{home}.weight"], written[f"{home}.scales"], group_size=32, bits=4, mode="mxfp4"
        )
        expected = values.reshape(experts, rows, -1)[:, place::2]
        assert np.array_equal(np.array(got.astype(mx.float32)), expected)
        assert equal(written[f"{home}.bias"], bias[:, place::2])


def test_norms_stored_less_one_are_written_whole(save: Save, tmp_path: Path) -> None:
    arrays = {
        f"{AT}input_layernorm.weight": random((64,)),
        f"{AT}linear_attn.norm.weight": random((32,)),
        f"{AT}mlp.gate_proj.weight": random((64, 64)),
    }
    inventory = save(tmp_path / "source", arrays, {"model_type": "qwen3_next", "num_hidden_layers": 1})
    written = convert(inventory, "q8", tmp_path)
    norm, inner = f"{AT}input_layernorm.weight", f"{AT}linear_attn.norm.weight"
    assert equal(written[norm], arrays[norm].astype(mx.float32) + 1)
    assert equal(written[inner], arrays[inner])


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16, mx.float32], ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")], ids=str)
@pytest.mark.parametrize("target", ["q4", "q8", "mxfp4", "mxfp8"])
def test_what_no_format_can_store_is_refused(
    save: Save, tmp_path: Path, target: str, value: float, dtype: mx.Dtype
) -> None:
    name = f"{AT}mlp.gate_proj.weight"
    weight = mx.ones((64, 128)).astype(dtype)
    weight[63, 100] = value
    inventory = save(tmp_path / "source", {name: weight}, {"model_type": "llama"})
    with pytest.raises(MalformedFile, match=r"mlp\.gate_proj\.weight. has numbers that are NaN"):
        convert(inventory, target, tmp_path)


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16, mx.float32], ids=str)
@pytest.mark.parametrize("target", ["q4", "bf16", "f32"])
def test_a_nan_in_what_is_not_quantized_is_refused(
    save: Save, tmp_path: Path, target: str, dtype: mx.Dtype
) -> None:
    name = f"{AT}input_layernorm.weight"
    norm = mx.ones((128,)).astype(dtype)
    norm[100] = float("nan")
    arrays = {name: norm, f"{AT}mlp.gate_proj.weight": mx.ones((64, 128))}
    inventory = save(tmp_path / "source", arrays, {"model_type": "llama"})
    with pytest.raises(MalformedFile, match=r"input_layernorm\.weight. has numbers that are NaN"):
        convert(inventory, target, tmp_path)


def test_an_infinity_in_a_bias_passes(save: Save, tmp_path: Path) -> None:
    bias = mx.array([1.0, float("-inf")] * 32)
    arrays = {f"{AT}mlp.gate_proj.bias": bias, f"{AT}mlp.gate_proj.weight": mx.ones((64, 128))}
    inventory = save(tmp_path / "source", arrays, {"model_type": "llama"})
    for target in ("q4", "f16"):
        written = convert(inventory, target, tmp_path)[f"{AT}mlp.gate_proj.bias"]
        assert mx.array_equal(written.astype(mx.float32), bias)


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float32], ids=str)
def test_a_number_beyond_float16_is_refused(save: Save, tmp_path: Path, dtype: mx.Dtype) -> None:
    weight = mx.ones((64, 128)).astype(dtype)
    weight[63, 100] = -70000.0
    inventory = save(tmp_path / "source", {f"{AT}mlp.gate_proj.weight": weight}, {"model_type": "llama"})
    with pytest.raises(SourceError, match=r"gate_proj\.weight. has numbers that are too large for f16"):
        convert(inventory, "f16", tmp_path)
    assert convert(inventory, "bf16", tmp_path)
