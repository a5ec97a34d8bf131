from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import MalformedFile, SourceError, UnsupportedSource
from modelkit.source.fp8 import Scales
from modelkit.source.prequantized import (
    BitNetWeights,
    FloatWeights,
    Fp8Weights,
    MlxWeights,
    Mxfp4Blocks,
    Packing,
    SourceKind,
    recognise,
)
from tests.modelkit.source.files import Specs, take_stock, write_source

Q4 = {"bits": 4, "group_size": 64}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
Tensor = tuple[str, tuple[int, ...]]


def kind_of(folder: Path, tensors: Specs, **config: Any) -> SourceKind:
    return recognise(take_stock(write_source(folder, tensors, **config)))


def packed(module: str, bits: int = 4, group: int = 64, mode: str = "affine") -> dict[str, Tensor]:
    """A module of [8, 128] weights as MLX packs it."""
    scales = ("BF16" if mode == "affine" else "U8", (8, 128 // group))
    tensors = {f"{module}.weight": ("U32", (8, 128 * bits // 32)), f"{module}.scales": scales}
    return {**tensors, f"{module}.biases": scales} if mode == "affine" else tensors


def test_plain_floats(tmp_path: Path) -> None:
    tensors: Specs = {
        "a.weight": ("BF16", (4, 4)),
        "b.weight": ("F32", (4,)),
        "token_ordering": ("I64", (4,)),
    }
    assert kind_of(tmp_path, tensors) == FloatWeights()


@pytest.mark.parametrize("bits", [4, 8])
def test_the_shared_mlx_sources_are_recognised(shared_data: Path, bits: int) -> None:
    inventory = take_stock(shared_data / "tiny_quant" / f"qwen3_mlx_q{bits}")
    kind = recognise(inventory)
    assert isinstance(kind, MlxWeights)
    scaled = {name.removesuffix(".scales") for name in inventory.tensors if name.endswith(".scales")}
    assert dict(kind.packed) == dict.fromkeys(scaled, Packing(bits, 64, "affine"))


def test_every_shared_float_source_is_plain_floats(shared_data: Path) -> None:
    for folder in sorted((shared_data / "tiny").iterdir()):
        assert recognise(take_stock(folder)) == FloatWeights()


@pytest.mark.parametrize(
    ("bits", "group", "mode"),
    [(bits, group, "affine") for bits in (2, 3, 5, 6) for group in (32, 128)]
    + [(4, 32, "mxfp4"), (8, 32, "mxfp8"), (4, 16, "nvfp4")],
)
def test_every_packing_of_mlx_is_read(tmp_path: Path, bits: int, group: int, mode: str) -> None:
    block = {"bits": bits, "group_size": group, "mode": mode}
    kind = kind_of(tmp_path, packed("a", bits, group, mode), quantization=block)
    assert isinstance(kind, MlxWeights)
    assert kind.packed == {"a": Packing(bits, group, mode)}


def test_modules_have_packings_of_their_own(tmp_path: Path) -> None:
    block = {**Q4, "b": {"bits": 8, "group_size": 32}, "c": False, "d": True, "e": {"mode": "mxfp4"}}
    tensors = {
        **packed("a"),
        **packed("b", 8, 32),
        "c.weight": ("BF16", (8, 128)),
        **packed("d"),
        **packed("e", 4, 32, "mxfp4"),
    }
    kind = kind_of(tmp_path, tensors, quantization=block)
    assert isinstance(kind, MlxWeights)
    assert kind.quantization.module_format("anything else") == Packing(4, 64, "affine")
    assert kind.quantization.module_format("c") is None
    assert kind.packed == {
        "a": Packing(4, 64, "affine"),
        "b": Packing(8, 32, "affine"),
        "d": Packing(4, 64, "affine"),
        "e": Packing(4, 32, "mxfp4"),
    }


@pytest.mark.parametrize("where", ["quantization", "quantization_config", "text_config"])
def test_the_block_is_found_wherever_exporters_put_it(tmp_path: Path, where: str) -> None:
    config = {where: {"quantization": Q4} if where == "text_config" else Q4}
    assert isinstance(kind_of(tmp_path, packed("a"), **config), MlxWeights)


A_WEIGHT: dict[str, Tensor] = {"a.weight": ("U32", (8, 16))}
A_SCALES: dict[str, Tensor] = {"a.scales": ("BF16", (8, 2))}
A_BIASES: dict[str, Tensor] = {"a.biases": ("BF16", (8, 2))}


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({**A_WEIGHT, **A_SCALES}, "no `a.biases`"),
        (
            {**A_WEIGHT, "a.scales": ("BF16", (8, 1)), **A_BIASES},
            "`a.scales` is BF16 [8, 1]; `a.weight` [8, 16] at",
        ),
        ({**A_WEIGHT, "a.scales": ("BF16", (16,)), **A_BIASES}, "takes F32 or F16 or BF16 [8, 2]"),
        ({**A_WEIGHT, "a.scales": ("U8", (8, 2)), **A_BIASES}, "`a.scales` is U8"),
        ({**A_WEIGHT, **A_SCALES, "a.biases": ("F32", (8, 2))}, "`a.biases` is F32"),
        ({**A_WEIGHT, **A_SCALES, "a.biases": ("BF16", (8, 3))}, "`a.biases` is BF16 [8, 3]"),
        ({"a.weight": ("U32", (8, 15)), **A_SCALES, **A_BIASES}, "`a.weight` has shape [8, 15]"),
        ({"a.weight": ("U32", (8, 0)), **A_SCALES, **A_BIASES}, "`a.weight` has shape [8, 0]"),
        ({"a.weight": ("U32", (16,)), "a.scales": ("BF16", (2,)), **A_BIASES}, "`a.weight` has shape [16]"),
        (
            {**packed("a"), "b.weight": ("U32", (8, 16))},
            "`b.weight` holds packed codes (U32) and has no scales",
        ),
    ],
)
def test_a_triplet_that_does_not_fit_is_refused(tmp_path: Path, tensors: Specs, said: str) -> None:
    with pytest.raises(MalformedFile) as caught:
        kind_of(tmp_path, tensors, quantization=Q4)
    assert said in caught.value.message


def test_biases_beside_a_mode_without_them_are_refused(tmp_path: Path) -> None:
    tensors = {**packed("a", 4, 32, "mxfp4"), "a.biases": ("U8", (8, 4))}
    with pytest.raises(MalformedFile, match=r"mxfp4, and has `a.biases`"):
        kind_of(tmp_path, tensors, quantization={"bits": 4, "group_size": 32, "mode": "mxfp4"})


@pytest.mark.parametrize(
    "block",
    [
        {"bits": 3.7, "group_size": 64},
        {"bits": 7, "group_size": 64},
        {"bits": True, "group_size": 64},
        {"bits": 4, "group_size": 0},
        {"bits": 4, "group_size": 48},
        {"bits": 4, "group_size": 64, "mode": "mxfp4"},
        {"bits": 4, "group_size": 64, "mode": "int4"},
        {"bits": 4, "group_size": 64, "mode": ["affine"]},
        {**Q4, "b": {"bits": 4, "rank": 8}},
    ],
)
def test_a_packing_that_mlx_has_not_is_refused(tmp_path: Path, block: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedSource, match=r"config.json: quantization"):
        kind_of(tmp_path, packed("a"), quantization=block)


@pytest.mark.parametrize(
    ("tensors", "config", "said"),
    [
        (packed("a"), {}, "no `quantization` block"),
        (packed("a"), {"quantization": {**Q4, "a": False}}, "`a` is not quantized, and it has scales"),
        (
            {**packed("a"), "b.weight": ("BF16", (8, 128))},
            {"quantization": {**Q4, "b": Q4}},
            "`b` is quantized, and it has no scales",
        ),
        ({"a.weight": ("BF16", (8, 8))}, {"quantization": Q4}, "they are plain floats"),
        ({"a.weight": ("BF16", (8, 8))}, {"quantization_config": {"quant_method": "gptq"}}, "plain floats"),
        (
            {"a.weight": ("BF16", (8, 8))},
            {"text_config": {"quantization_config": FP8}},
            "text_config.quantization",
        ),
    ],
)
def test_a_config_that_contradicts_the_tensors_is_refused(
    tmp_path: Path, tensors: Specs, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(SourceError) as caught:
        kind_of(tmp_path, tensors, **config)
    assert said in caught.value.message


@pytest.mark.parametrize("block", [None, {}, [], {"quant_method": None}])
def test_an_empty_quantization_block_claims_nothing(tmp_path: Path, block: object) -> None:
    assert kind_of(tmp_path, {"a.weight": ("BF16", (8, 8))}, quantization_config=block) == FloatWeights()


@pytest.mark.parametrize("suffix", ["_scale_inv", "_scale"])
@pytest.mark.parametrize(("shape", "blocks"), [((256, 130), (2, 2)), ((3, 128, 128), (3, 1, 1))])
def test_block_fp8(tmp_path: Path, suffix: str, shape: tuple[int, ...], blocks: tuple[int, ...]) -> None:
    tensors: Specs = {
        "a.weight": ("F8_E4M3", shape),
        f"a.weight{suffix}": ("F32", blocks),
        "norm.weight": ("BF16", (4,)),
    }
    kind = kind_of(tmp_path, tensors, quantization_config=FP8)
    assert kind == Fp8Weights({"a.weight": Scales(f"a.weight{suffix}", (128, 128))})


@pytest.mark.parametrize(
    ("shape", "scales", "block"),
    [
        ((256, 130), (256, 1), (1, 130)),
        ((256, 130), (256,), (1, 130)),
        ((256, 130), (), (256, 130)),
        ((256, 130), (1,), (256, 130)),
        ((3, 256, 130), (3, 256, 1), (1, 130)),
        ((3, 256, 130), (3, 1, 130), (256, 1)),
        ((3, 256, 130), (3,), (256, 130)),
        ((3, 256, 130), (3, 1, 1), (256, 130)),
        ((256, 130), (256, 2), (1, 65)),
        ((256, 130), (2, 1, 2, 1), (128, 128)),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["fp8", "compressed-tensors", "fbgemm_fp8", "modelopt", "quark"])
def test_fp8_by_rows_and_as_a_whole(
    tmp_path: Path, method: str, shape: tuple[int, ...], scales: tuple[int, ...], block: tuple[int, int]
) -> None:
    others = ("a.input_scale", "self_attn.k_scale", "self_attn.v_proj.v_scale", "a.input_scale_ub")
    tensors: Specs = {
        "a.weight": ("F8_E4M3", shape),
        "a.weight_scale": ("BF16", scales),
        **dict.fromkeys(others, ("F32", ())),
    }
    kind = kind_of(tmp_path, tensors, quantization_config={"quant_method": method})
    assert kind == Fp8Weights({"a.weight": Scales("a.weight_scale", block)}, frozenset(others))


def test_block_fp8_of_compressed_tensors(tmp_path: Path) -> None:
    tensors: Specs = {"a.weight": ("F8_E4M3", (256, 128)), "a.weight_scale": ("BF16", (2, 1))}
    group = {"weights": {"num_bits": 8, "type": "float", "block_structure": [128, 128]}}
    block = {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": group},
    }
    assert isinstance(kind_of(tmp_path, tensors, quantization_config=block), Fp8Weights)


@pytest.mark.parametrize("by", [{}, {"quant_method": "a-tool-of-ours"}])
def test_blocks_of_a_stated_size_need_no_known_tool(tmp_path: Path, by: dict[str, str]) -> None:
    tensors: Specs = {"a.weight": ("F8_E4M3", (256, 128)), "a.weight_scale_inv": ("F32", (2, 1))}
    kind = kind_of(tmp_path, tensors, quantization_config={**by, "weight_block_size": [128, 128]})
    assert kind == Fp8Weights({"a.weight": Scales("a.weight_scale_inv", (128, 128))})


def test_powers_of_two_and_experts_in_mxfp4(tmp_path: Path) -> None:
    """DeepSeek V4's."""
    tensors: Specs = {
        "a.weight": ("F8_E4M3", (256, 128)),
        "a.scale": ("F8_E8M0", (2, 1)),
        "b.weight": ("I8", (8, 64)),
        "b.scale": ("F8_E8M0", (8, 4)),
        "c.tid2eid": ("I64", (8, 2)),
    }
    kind = kind_of(tmp_path, tensors, quantization_config=FP8)
    assert kind == Fp8Weights({"a.weight": Scales("a.scale", (128, 128))}, packed={"b.weight": "b.scale"})


E4M3: dict[str, Tensor] = {"a.weight": ("F8_E4M3", (256, 256))}


@pytest.mark.parametrize(
    ("tensors", "block", "error", "said"),
    [
        (E4M3, FP8, UnsupportedSource, "without scales"),
        (
            {**E4M3, "a.weight_scale": ("F32", (1, 2))},
            FP8,
            MalformedFile,
            "[256, 1] by rows, [1, 1]",
        ),
        ({**E4M3, "a.weight_scale_inv": ("F32", (2, 2))}, {}, UnsupportedSource, "does not say which tool"),
        ({**E4M3, "a.weight_scale": ("F32", ())}, {"quant_method": "x"}, UnsupportedSource, "says `x`"),
        (
            {**E4M3, "a.weight_scale_inv": ("F32", (2, 2))},
            {**FP8, "weight_block_size": [64, 64]},
            MalformedFile,
            "[4, 4] in blocks of 64 x 64",
        ),
        (
            {**E4M3, "a.weight_scale_inv": ("F32", (2, 3))},
            FP8,
            MalformedFile,
            "[2, 3]; `a.weight` [256, 256] takes",
        ),
        ({**E4M3, "a.weight_scale_inv": ("U8", (2, 2))}, FP8, UnsupportedSource, "is U8"),
        (E4M3, {**FP8, "weight_block_size": 128}, UnsupportedSource, "two sizes were expected"),
        ({**E4M3, "a.weight_scale_inv": ("F8_E5M2", (2, 2))}, FP8, UnsupportedSource, "FP8 E5M2"),
        ({**E4M3, "a.weight_scale_inv": ("I8", (2, 2))}, FP8, UnsupportedSource, "is I8"),
        (
            {
                **E4M3,
                "a.scale": ("F8_E8M0", (2, 2)),
                "b.weight": ("I8", (8, 64)),
                "b.scale": ("F8_E8M0", (8, 3)),
            },
            FP8,
            MalformedFile,
            "`b.scale` has shape [8, 3]; codes of four bits of shape [8, 64]",
        ),
        (
            {"a.weight": ("F8_E4M3", (8,)), "a.weight_scale": ("F32", (2,))},
            FP8,
            UnsupportedSource,
            "1 dimensions",
        ),
        ({"a.weight": ("F8_E5M2", (8, 8))}, FP8, UnsupportedSource, "FP8 E5M2"),
        ({"a.weight": ("F8_E4M3FNUZ", (8, 8))}, FP8, UnsupportedSource, "FP8 E4M3FNUZ"),
    ],
)
def test_other_kinds_of_fp8_are_refused_by_name(
    tmp_path: Path, tensors: Specs, block: dict[str, Any], error: type[SourceError], said: str
) -> None:
    with pytest.raises(error) as caught:
        kind_of(tmp_path, tensors, quantization_config=block)
    assert said in caught.value.message


def test_gpt_oss_blocks_are_a_kind_of_their_own(tmp_path: Path) -> None:
    tensors: Specs = {
        "experts.down_proj_blocks": ("U8", (2, 8, 4, 16)),
        "experts.down_proj_scales": ("U8", (2, 8, 4)),
        "a.weight": ("BF16", (8, 8)),
    }
    kind = kind_of(tmp_path, tensors, quantization_config={"quant_method": "mxfp4"})
    assert kind == Mxfp4Blocks(("experts.down_proj",))


@pytest.mark.parametrize("scales", [("U8", (2, 8, 5)), ("BF16", (2, 8, 4)), None])
def test_gpt_oss_blocks_with_other_scales_are_refused(tmp_path: Path, scales: Tensor | None) -> None:
    tensors: dict[str, Tensor] = {"x_blocks": ("U8", (2, 8, 4, 16))}
    with pytest.raises(MalformedFile, match="`x_scales`"):
        kind_of(tmp_path, {**tensors, "x_scales": scales} if scales else tensors)


FLOAT: dict[str, Tensor] = {"a.bias": ("F16", (8,))}


@pytest.mark.parametrize(
    ("tensors", "method", "said"),
    [
        ({"a.qweight": ("I32", (16, 64)), "a.scales": ("F16", (1, 64))}, "gptq", "GPTQ"),
        ({"a.qweight": ("I32", (128, 8)), "a.scales": ("F16", (1, 64))}, "awq", "AWQ"),
        ({"a.qweight": ("I32", (16, 64)), "a.scales": ("F16", (1, 64))}, None, "GPTQ (`a.qweight`)"),
        ({"a.qweight": ("I32", (128, 8)), "a.scales": ("F16", (1, 64))}, None, "AWQ (`a.qweight`)"),
        ({"a.g_idx": ("I32", (64,))}, None, "GPTQ"),
        (
            {"a.weight": ("U8", (64, 1)), "a.weight.absmax": ("F32", (1,))},
            "bitsandbytes",
            "bitsandbytes 4-bit",
        ),
        ({"a.weight": ("I8", (8, 8)), "a.SCB": ("F32", (8,))}, "bitsandbytes", "bitsandbytes 8-bit"),
        ({"a.W_q": ("U8", (8, 8))}, "hqq", "HQQ"),
        ({"a.W_q": ("U8", (8, 8))}, None, "HQQ"),
        ({"a.W_q": ("U8", (8, 8))}, "sinq", "with SINQ (`a.W_q`)"),
        ({"a.codebooks": ("F16", (8,))}, "brand-new", "with brand-new (`a.codebooks`)"),
        ({"a.codes": ("I8", (8, 8)), "a.codebooks": ("F16", (8,))}, "aqlm", "AQLM"),
        ({"a.q_weight": ("I32", (8, 8)), "a.q_invperm": ("I16", (8,))}, None, "EXL2"),
        ({"a.trellis": ("I16", (8, 8))}, None, "EXL3"),
        ({"a.weight_packed": ("I32", (8, 8))}, "compressed-tensors", "does not say how its weights are"),
        (
            {"a.weight": ("I8", (8, 8)), "a.weight_scale": ("F32", (8, 1))},
            "compressed-tensors",
            "does not say how its weights are",
        ),
        ({"a.weight": ("U8", (4, 16)), "a.weight_scale": ("F32", (8, 1))}, "modelopt", "NVIDIA ModelOpt"),
        ({"a.weight_scale_2": ("F32", ())}, None, "ModelOpt NVFP4"),
        ({"a._weight_qdata": ("I8", (8, 8))}, "torchao", "torchao"),
        ({"a.weight": ("I8", (8, 8)), "a.weight_scales": ("F16", (8,))}, "eetq", "EETQ"),
        ({"a.weight": ("U8", (2, 8)), "a.weight_scale": ("BF16", (1,))}, "bitnet", "BitNet"),
        ({"a.weight": ("I8", (8, 8))}, "vptq", "VPTQ"),
        ({"a.weight": ("I8", (8, 8))}, "brand-new", "brand-new"),
        ({"a.weight": ("I8", (8, 8))}, None, "in a way that modelkit does not know (`a.weight` is I8)"),
    ],
)
def test_other_tools_are_refused_by_name(
    tmp_path: Path, tensors: Specs, method: str | None, said: str
) -> None:
    block = {"quant_method": method, "format": "pack-quantized"} if method else None
    with pytest.raises(UnsupportedSource) as caught:
        kind_of(tmp_path, {**FLOAT, **tensors}, quantization_config=block)
    assert said in caught.value.message
    assert "--quantize" in str(caught.value)


BITNET: dict[str, Any] = {"model_type": "bitnet", "quantization_config": {"quant_method": "bitnet"}}


@pytest.mark.parametrize(
    "tensors",
    [
        {"a.weight": ("U8", (2, 8)), "a.weight_scale": ("BF16", (1,)), "b.weight": ("BF16", (8,))},
        {"a.weight": ("BF16", (8, 8))},
    ],
)
def test_bitnet_is_known(tmp_path: Path, tensors: Specs) -> None:
    assert kind_of(tmp_path, tensors, **BITNET) == BitNetWeights()


@pytest.mark.parametrize(
    ("tensors", "error"),
    [
        ({"a.weight": ("U8", (2, 8))}, MalformedFile),
        ({"a.weight": ("U8", (2, 8)), "a.weight_scale": ("BF16", (8,))}, MalformedFile),
        ({"a.weight": ("I8", (2, 8)), "a.weight_scale": ("BF16", (1,))}, UnsupportedSource),
    ],
)
def test_bitnet_that_does_not_fit_is_refused(tmp_path: Path, tensors: Specs, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"`a\.weight`"):
        kind_of(tmp_path, tensors, **BITNET)


def test_a_method_inside_the_text_config_counts(tmp_path: Path) -> None:
    tensors: Specs = {"a.weight": ("I8", (8, 8))}
    with pytest.raises(UnsupportedSource, match="GPTQ"):
        kind_of(tmp_path, tensors, text_config={"quantization_config": {"quant_method": "gptq"}})


def test_two_kinds_at_once_are_refused(tmp_path: Path) -> None:
    tensors = {**packed("a"), "b_blocks": ("U8", (8, 16)), "b_scales": ("U8", (8,))}
    with pytest.raises(UnsupportedSource, match="mixes"):
        kind_of(tmp_path, tensors, quantization=Q4)
