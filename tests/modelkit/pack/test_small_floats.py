"""Checkpoints of MXFP4, MXFP8 and NVFP4: their codes are kept, and their numbers are right."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkit
from modelkit.errors import MalformedFile, ModelkitError, PlanError, UnsupportedSource
from modelkit.source.codes import CodeWeights
from modelkit.source.prequantized import recognise
from modelkit.store.store import Store
from tests.modelkit.source.files import Specs, take_stock, write_source
from tests.support.code_folders import IDS, apart, create, llama, logits, stored
from tests.support.parity import Reference
from tests.support.published_states import each_alone
from tests.support.small_floats import SAID, two


def plain_logits(folder: Path) -> np.ndarray:
    with modelkit.load(folder) as model:
        return model.logits(IDS)


@pytest.mark.parametrize(("kind", "tool"), SAID)
def test_codes_are_kept_and_unpacked_exactly(kind: str, tool: str, tmp_path: Path) -> None:
    coded, plain = two(tmp_path, *llama(), kind, tool)
    made, wanted = create(coded), plain_logits(plain)
    config = json.loads(Store(tmp_path).resolve("coded").files["config.json"].read_bytes())
    assert "quantization_config" not in config
    entry = config["quantization"]
    assert (entry["mode"] == kind) is (kind != "nvfp4")
    assert {"mode": "gguf", "type": "nvfp4"} in entry.values() or kind != "nvfp4"
    assert apart(logits(coded), wanted) < 1e-3
    assert apart(plain_logits(coded), wanted) < 1e-3
    assert all(row.exact is not False for row in made.preparation.target.plan.tensors)
    create(coded, quantize="f32")
    assert np.array_equal(logits(coded), wanted)
    made = create(coded, quantize="q8")
    assert apart(logits(coded), wanted) < 0.3
    called = tool.split(" ")[0].replace("auto-", "auto")
    assert any(f"quantized with {called} ({kind})" in note.lower() for note in made.notes)


@pytest.mark.parametrize(("kind", "tool"), [("mxfp4", "quark"), ("mxfp8", "modelopt"), ("nvfp4", "modelopt")])
@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v3"])
def test_experts(family: str, kind: str, tool: str, tmp_path: Path) -> None:
    record = Reference(family).record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    coded, plain = two(tmp_path, config, record["tensors"], kind, tool, each_alone)
    create(coded)
    assert apart(logits(coded), plain_logits(plain)) < 2e-3
    kept = stored(coded)
    stacks = [name for name in kept if name.endswith(".factor") and "switch_mlp" in name]
    assert bool(stacks) is (kind == "nvfp4")
    for name in stacks:
        assert kept[name].shape == kept[name.replace(".factor", ".weight")].shape[:1]


@pytest.mark.parametrize(("kind", "tool"), [("nvfp4", "modelopt"), ("mxfp4", "quark")])
@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_fp8_beside_them(family: str, kind: str, tool: str, tmp_path: Path) -> None:
    """ModelOpt's MIXED_PRECISION, compressed-tensors' mixed-precision."""
    config, shapes = llama()
    if family != "llama":
        record = Reference(family).record
        config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
        shapes = record["tensors"]
    coded, plain = two(tmp_path, config, shapes, kind, tool, each_alone, fp8="self_attn")
    formats = {row.name.split(".")[-2]: row.label for row in create(coded).preparation.target.plan.tensors}
    assert (formats["q_proj"], formats["gate_proj"]) == ("mxfp8", kind)
    assert apart(logits(coded), plain_logits(plain)) < (1 if family == "llama" else 5)
    assert np.array_equal(plain_logits(coded), logits(coded))
    create(coded, quantize="f32")
    assert np.array_equal(logits(coded), plain_logits(plain))


def test_the_bytes_are_the_tools(tmp_path: Path) -> None:
    coded, _ = two(tmp_path, *llama(), "mxfp8", "modelopt")
    create(coded)
    theirs = (coded / "model.safetensors").read_bytes()
    module = "model.layers.0.mlp.up_proj"
    kept = stored(coded)
    assert np.array(kept[f"{module}.weight"]).tobytes() in theirs
    assert np.array(kept[f"{module}.scales"]).tobytes() in theirs


def coded_of(folder: Path, tensors: Specs, method: str | None) -> CodeWeights:
    block = {"quant_method": method} if method else None
    found = recognise(
        take_stock(write_source(folder, {"a.bias": ("F32", (8,)), **tensors}, quantization_config=block))
    )
    assert isinstance(found, CodeWeights)
    return found


def test_powers_of_two_may_have_their_own_type(tmp_path: Path) -> None:
    for method, name in (
        ("modelopt", "weight_scale"),
        ("fp8", "weight_scale_inv"),
        ("mxfp8", "weight_scale_inv"),
    ):
        tensors: Specs = {"a.weight": ("F8_E4M3", (8, 64)), f"a.{name}": ("F8_E8M0", (8, 2))}
        assert coded_of(tmp_path, tensors, method).matrices["a.weight"].layout == "mxfp8"


@pytest.mark.parametrize(
    ("tensors", "method", "error", "said"),
    [
        (
            {"a.weight": ("U8", (2, 8, 8)), "a.weight_scale": ("F8_E4M3", (2, 8, 1))},
            "modelopt",
            UnsupportedSource,
            "nvfp4 in 3 dimensions",
        ),
        (  # MXFP6
            {"a.weight_packed": ("U8", (8, 48)), "a.weight_scale": ("U8", (8, 2))},
            "compressed-tensors",
            MalformedFile,
            "which is not mxfp4",
        ),
        (
            {
                "a.weight": ("U8", (8, 8)),
                "a.weight_scale": ("F8_E4M3", (8, 1)),
                "a.pre_quant_scale": ("BF16", (16,)),
            },
            "modelopt",
            UnsupportedSource,
            "`a.pre_quant_scale` changes the numbers",
        ),
        (
            {
                "a.weight": ("U8", (8, 8)),
                "a.weight_scale": ("F8_E4M3", (8, 1)),
                "a.weight_scale_2": ("F32", (8,)),
            },
            "modelopt",
            MalformedFile,
            "one F32 beside nvfp4",
        ),
    ],
)
def test_what_is_something_else_is_refused(
    tensors: Specs, method: str, error: type[Exception], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        coded_of(tmp_path, tensors, method)


@pytest.mark.parametrize("dtype", [("F8_E4M3", "U8"), ("F8_E4M3", "F32")])
def test_rotations_are_refused_of_floats_too(dtype: tuple[str, str], tmp_path: Path) -> None:
    """compressed-tensors' transforms are computed while the model runs."""
    codes, scales = dtype
    tensors: Specs = {
        "a.weight": (codes, (8, 64)),
        "a.weight_scale": (scales, (8, 2 if scales == "U8" else 1)),
    }
    block = {"quant_method": "compressed-tensors", "transform_config": {"config_groups": {"R4": {}}}}
    with pytest.raises(UnsupportedSource, match="transform_config"):
        recognise(take_stock(write_source(tmp_path, tensors, quantization_config=block)))


def test_scales_of_another_kind_are_refused_of_auto_round(tmp_path: Path) -> None:
    """Floats without a sign, in bytes."""
    tensors: Specs = {"a.weight_packed": ("U8", (8, 32)), "a.weight_scale": ("U8", (8, 2))}
    block = {"quant_method": "auto-round", "data_type": "nvfp4_v2"}
    with pytest.raises(UnsupportedSource, match=r"AutoRound \(`a\.weight_packed`"):
        recognise(take_stock(write_source(tmp_path, tensors, quantization_config=block)))


def _broken(folder: Path, name: str, value: int) -> None:
    """The first byte of a tensor."""
    path = folder / "model.safetensors"
    raw = bytearray(path.read_bytes())
    size = int.from_bytes(raw[:8], "little")
    start = json.loads(raw[8 : 8 + size])[name]["data_offsets"][0]
    raw[8 + size + start] = value
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("kind", "leaf", "value", "said"),
    [
        ("mxfp8", "weight", 0xFF, "has numbers that are NaN"),
        ("mxfp8", "weight_scale", 0xFF, "scales that are NaN or below 0"),
        ("nvfp4", "weight_scale", 0xB0, "scales that are NaN or below 0"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"quantize": "q8"}])
def test_what_is_no_number_is_refused(
    kind: str, leaf: str, value: int, said: str, options: dict[str, Any], tmp_path: Path
) -> None:
    coded, _ = two(tmp_path, *llama(), kind, "modelopt")
    name = f"model.layers.0.mlp.up_proj.{leaf}"
    _broken(coded, name, value)
    with pytest.raises(ModelkitError, match=said) as raised:
        create(coded, **options)
    assert name in raised.value.message


def test_rows_that_no_block_fits_say_what_to_do(tmp_path: Path) -> None:
    coded, plain = two(tmp_path, *llama(96), "nvfp4", "modelopt", multiple=32)
    with pytest.raises(PlanError, match="in rows of 96; multiples of 64 are kept") as raised:
        create(coded)
    assert "-q f32, exactly" in str(raised.value.hint)
    create(coded, quantize="f32")
    assert np.array_equal(logits(coded), plain_logits(plain))
