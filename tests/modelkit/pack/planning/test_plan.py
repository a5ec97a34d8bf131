import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelkit.errors import PlanError
from modelkit.modelfile.quantizing import parse_format
from modelkit.pack.planning import file_layout
from modelkit.pack.planning.plan import plan
from modelkit.pack.planning.plan_types import Plan
from modelkit.source.fp8 import Scales
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import (
    FloatWeights,
    Fp8Weights,
    MlxQuantization,
    MlxWeights,
    Mxfp4Blocks,
    Packing,
)
from modelkit.source.tensor import BITS
from runtime.quant import FORMATS

Make = Callable[..., Inventory]
AT = "model.layers.0."
SMALL = {
    "model.embed_tokens.weight": ("BF16", (96, 64)),
    "lm_head.weight": ("BF16", (96, 64)),
    "model.norm.weight": ("BF16", (64,)),
    f"{AT}mlp.gate_proj.weight": ("BF16", (128, 64)),
    f"{AT}mlp.down_proj.weight": ("BF16", (64, 100)),
    f"{AT}self_attn.v_proj.weight": ("BF16", (64, 64)),
}


def floats(make: Make, wanted: str | None, tensors: Any = SMALL, **config: Any) -> Plan:
    inventory = make(tensors, {"num_hidden_layers": 4, **config})
    return plan(inventory, FloatWeights(), parse_format(wanted) if wanted else None)


def labels(made: Plan) -> dict[str, str]:
    return {tensor.name: tensor.label for tensor in made.tensors}


def test_without_a_format_the_file_is_kept(inventory_of: Make) -> None:
    made = floats(inventory_of, None)
    assert not made.converts
    assert made.files[0].source is not None


def test_a_cast_that_changes_nothing_keeps_the_file(inventory_of: Make) -> None:
    assert not floats(inventory_of, "bf16").converts


def test_quantized_tensors_follow_mlx_in_name_and_shape(inventory_of: Make) -> None:
    made = floats(inventory_of, "q4")
    stored = made.stored()
    assert stored[f"{AT}mlp.gate_proj.weight"] == ("U32", (128, 8))
    assert stored[f"{AT}mlp.gate_proj.scales"] == ("BF16", (128, 1))
    assert stored[f"{AT}mlp.gate_proj.biases"] == ("BF16", (128, 1))


@pytest.mark.parametrize(("wanted", "words"), [("q2", 4), ("q3", 6), ("q5", 10), ("q6", 12), ("q8", 16)])
def test_codes_are_packed_into_words(inventory_of: Make, wanted: str, words: int) -> None:
    made = floats(inventory_of, wanted)
    assert made.stored()[f"{AT}mlp.gate_proj.weight"] == ("U32", (128, words))


def test_microscaling_formats_have_byte_scales_and_no_biases(inventory_of: Make) -> None:
    stored = floats(inventory_of, "nvfp4").stored()
    assert stored[f"{AT}mlp.gate_proj.scales"] == ("U8", (128, 4))
    assert f"{AT}mlp.gate_proj.biases" not in stored


def test_the_config_states_the_default_and_what_differs(inventory_of: Make) -> None:
    block = floats(inventory_of, "q4").config["quantization"]
    eight = {"group_size": 64, "bits": 8, "mode": "affine"}
    assert block == {
        "group_size": 64,
        "bits": 4,
        "mode": "affine",
        "lm_head": eight,
        "model.embed_tokens": eight,
        f"{AT}self_attn.v_proj": eight,
    }


def test_a_wrapped_module_is_stated_under_both_spellings(inventory_of: Make) -> None:
    at = "language_model.layers.0.self_attn.v_proj"
    tensors = {f"model.{at}.weight": ("BF16", (64, 64)), "lm_head.weight": ("BF16", (96, 64))}
    block = floats(inventory_of, "q4", tensors).config["quantization"]
    inside_out = "language_model.model.layers.0.self_attn.v_proj"
    assert {f"model.{at}", inside_out, "lm_head", "language_model.lm_head"} < set(block)


def test_a_cast_is_stated_in_the_config(inventory_of: Make) -> None:
    made = floats(inventory_of, "f16", torch_dtype="bfloat16", text_config={"dtype": "bfloat16"})
    assert made.config["torch_dtype"] == made.config["text_config"]["dtype"] == "float16"


def test_misfits_are_noted_with_their_reason(inventory_of: Make) -> None:
    note, _ = floats(inventory_of, "q4").notes
    assert note == (
        "1 matrix stays at bf16, 21% of the weights: rows of 100 elements do not divide into groups of 64 "
        f"({AT}mlp.down_proj.weight)"
    )


def test_a_request_that_nothing_fits_is_noted(inventory_of: Make) -> None:
    made = floats(inventory_of, "q4", {"lm_head.weight": ("BF16", (96, 48))})
    assert "nothing could be stored as q4" in made.notes
    assert "quantization" not in made.config


def test_layers_come_in_natural_order(inventory_of: Make) -> None:
    names = [f"model.layers.{number}.mlp.up_proj.weight" for number in (10, 2, 1)]
    made = floats(inventory_of, "q8", dict.fromkeys(names, ("BF16", (64, 64))))
    assert [tensor.name for tensor in made.tensors] == names[::-1]


def test_a_spare_head_is_left_out_of_a_conversion(inventory_of: Make) -> None:
    inventory, wanted = inventory_of(SMALL), parse_format("q8")
    made = plan(inventory, FloatWeights(), wanted, spare="lm_head.weight")
    assert "lm_head.weight" not in made.stored()
    assert any(note.startswith("lm_head.weight is left out") for note in made.notes)


def test_large_models_are_cut_into_shards(inventory_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_layout, "SHARD_BYTES", 10_000)
    made = floats(inventory_of, "q8")
    assert made.files[0].path == f"model-00001-of-{len(made.files):05d}.safetensors"
    assert tuple(tensor for file in made.files for tensor in file.tensors) == made.tensors
    assert all(len(file.tensors) == 1 or sum(t.nbytes for t in file.tensors) <= 10_000 for file in made.files)


def test_every_tensor_begins_where_its_numbers_may(inventory_of: Make) -> None:
    """Gemma 4 has a number of two bytes in every layer, and vectors of an odd length are as bad."""
    odd = {f"model.layers.{layer}.layer_scalar": ("BF16", (1,)) for layer in range(3)}
    odd |= {"model.layers.1.mlp.up_proj.bias": ("BF16", (77,)), "model.layers.1.codes.weight": ("U8", (5, 1))}
    matrices = {f"model.layers.{layer}.mlp.up_proj.weight": ("BF16", (64, 64)) for layer in range(3)}
    (file,) = floats(inventory_of, "q4", odd | matrices).files
    at = 0
    for output in (output for tensor in file.tensors for output in tensor.outputs):
        assert at % (BITS[output.dtype] // 8) == 0, output.name
        at += output.nbytes


def test_bits_per_weight_count_every_byte(inventory_of: Make) -> None:
    made = floats(inventory_of, "q8")
    elements = sum(math.prod(shape) for _, shape in SMALL.values())
    assert made.bits_per_weight == 8 * sum(row["size_bytes"] for row in made.rows()) / elements


def test_two_tensors_of_one_name_are_refused(inventory_of: Make) -> None:
    at = "model.layers.0.mlp"
    tensors = {
        f"{at}.experts.0.up_proj.weight": ("BF16", (64, 64)),
        f"{at}.switch_mlp.up_proj.weight": ("BF16", (1, 64, 64)),
    }
    with pytest.raises(PlanError, match=r"two tensors would be written as .*switch_mlp\.up_proj"):
        floats(inventory_of, "q4", tensors)


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(PlanError) as caught:
        parse_format("int5")
    assert "mxfp4" in (caught.value.hint or "")


# MLX sources

Q4 = Packing(4, 64, "affine")
PACKED = {
    "lm_head.weight": ("U32", (96, 16)),
    "lm_head.scales": ("BF16", (96, 1)),
    "lm_head.biases": ("BF16", (96, 1)),
    f"{AT}mlp.up_proj.weight": ("U32", (128, 8)),
    f"{AT}mlp.up_proj.scales": ("BF16", (128, 1)),
    f"{AT}mlp.up_proj.biases": ("BF16", (128, 1)),
    "model.norm.weight": ("BF16", (64,)),
}
PER_MODULE = {"lm_head": Packing(8, 64, "affine"), f"{AT}mlp.up_proj": Q4}


def packed(make: Make, config: dict[str, Any], wanted: str | None = None) -> Plan:
    kind = MlxWeights(MlxQuantization(Q4, {"lm_head": PER_MODULE["lm_head"]}), PER_MODULE)
    return plan(make(PACKED, config), kind, parse_format(wanted) if wanted else None)


def test_mlx_sources_keep_their_files_and_their_formats(inventory_of: Make) -> None:
    made = packed(inventory_of, {"quantization": {"bits": 4, "group_size": 64}})
    assert not made.converts
    assert labels(made) == {
        "lm_head.weight": "q8",
        f"{AT}mlp.up_proj.weight": "q4",
        "model.norm.weight": "bf16",
    }
    assert {tensor.name: tensor.shape for tensor in made.tensors}["lm_head.weight"] == (96, 64)


def test_mlx_sources_state_their_packing_where_loaders_look(inventory_of: Make) -> None:
    made = packed(inventory_of, {"text_config": {"quantization_config": {"bits": 4, "group_size": 64}}})
    assert made.config["quantization"] == {
        "bits": 4,
        "group_size": 64,
        "mode": "affine",
        "lm_head": {"bits": 8, "group_size": 64, "mode": "affine"},
    }


@pytest.mark.parametrize("wanted", ["q4", "q8"])
def test_quantized_sources_are_not_quantized_again(inventory_of: Make, wanted: str) -> None:
    with pytest.raises(PlanError, match="quantized already"):
        packed(inventory_of, {"quantization": {"bits": 4, "group_size": 64}}, wanted)


def test_gpt_oss_blocks_are_not_quantized_again(inventory_of: Make) -> None:
    with pytest.raises(PlanError, match="quantized already"):
        plan(inventory_of({"x_blocks": ("U8", (1, 2, 1, 16))}), Mxfp4Blocks(("x",)), parse_format("q4"))


# FP8 sources

FP8 = {
    f"{AT}self_attn.q_proj.weight": ("F8_E4M3", (256, 256)),
    f"{AT}self_attn.q_proj.weight_scale_inv": ("F32", (2, 2)),
    f"{AT}input_layernorm.weight": ("F32", (256,)),
    "model.embed_tokens.weight": ("BF16", (96, 256)),
}


def fp8(make: Make, wanted: str | None) -> Plan:
    scales = Scales(f"{AT}self_attn.q_proj.weight_scale_inv", (128, 128))
    kind = Fp8Weights({f"{AT}self_attn.q_proj.weight": scales})
    config = {"quantization_config": {"quant_method": "fp8"}, "num_hidden_layers": 1}
    return plan(make(FP8, config), kind, parse_format(wanted) if wanted else None)


def test_fp8_becomes_mxfp8_and_the_rest_stays(inventory_of: Make) -> None:
    made = fp8(inventory_of, None)
    assert labels(made) == {
        "model.embed_tokens.weight": "bf16",
        f"{AT}input_layernorm.weight": "f32",
        f"{AT}self_attn.q_proj.weight": "mxfp8",
    }


def test_fp8_scales_are_folded_in(inventory_of: Make) -> None:
    assert not any("scale_inv" in name for name in fp8(inventory_of, "q4").stored())


def test_fp8_takes_any_other_format(inventory_of: Make) -> None:
    assert labels(fp8(inventory_of, "q4"))[f"{AT}self_attn.q_proj.weight"] == "q4"
    assert labels(fp8(inventory_of, "bf16"))[f"{AT}self_attn.q_proj.weight"] == "bf16"


def test_the_fp8_block_is_gone_from_the_config(inventory_of: Make) -> None:
    config = fp8(inventory_of, None).config
    assert "quantization_config" not in config
    assert config["quantization"] == {"group_size": 32, "bits": 8, "mode": "mxfp8"}


# Invariants

NAMES = st.sampled_from(
    [
        "model.embed_tokens.weight",
        "lm_head.weight",
        "model.norm.weight",
        *[f"model.layers.{layer}.mlp.{name}_proj.weight" for layer in (0, 1) for name in ("up", "down")],
        *[f"model.layers.0.mlp.experts.{index}.up_proj.weight" for index in range(3)],
        "model.layers.1.mlp.experts.gate_up_proj",
    ]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.sets(NAMES, min_size=1), rows=st.integers(2, 40), wanted=st.sampled_from(FORMATS))
def test_every_source_row_is_written_exactly_once(
    inventory_of: Make, names: set[str], rows: int, wanted: Any
) -> None:
    tensors = {
        name: ("F32", (64,) if "norm" in name else (2, 2 * rows, 64) if "gate_up" in name else (2 * rows, 64))
        for name in names
    }
    try:
        made = plan(inventory_of(tensors), FloatWeights(), wanted)
    except PlanError:
        indices = {int(name.split(".")[5]) for name in names if "experts." in name and "gate_up" not in name}
        assert indices not in ({0}, {0, 1}, {0, 1, 2}), "only a stack with a hole is refused"
        return
    seen = [
        (slab.tensor.name, row)
        for tensor in made.tensors
        for slab in tensor.slabs
        for row in range(slab.start, slab.stop, slab.step)
    ]
    every = [(name, row) for name, (_, shape) in tensors.items() for row in range(math.prod(shape[:-1]))]
    assert sorted(seen) == sorted(every)


def test_equal_sources_give_equal_plans(inventory_of: Make) -> None:
    backwards = dict(reversed(SMALL.items()))
    one, other = floats(inventory_of, "q4"), floats(inventory_of, "q4", backwards)
    assert one.fingerprint() == other.fingerprint()
    assert one.config == other.config
