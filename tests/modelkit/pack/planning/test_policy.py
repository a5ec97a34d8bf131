import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.pack.planning.families import request_for
from modelkit.pack.planning.policy import Choice, choose
from runtime.quant import FORMATS, Format, find_format
from runtime.tensors.quantizing import Tensor, more_bits

LAYER = "model.layers.3."
CONFIG = {"model_type": "qwen2_vl", "num_hidden_layers": 30}


def row(name: str) -> Format:
    found = find_format(name)
    assert found is not None
    return found


def fate(name: str, shape: tuple[int, ...], wanted: str, *, dtype: str = "BF16", draft: bool = False) -> str:
    """The format's name, or "source"."""
    chosen = decide(name, shape, wanted, dtype=dtype, draft=draft)
    return chosen.format.name if chosen.format else "source"


def decide(
    name: str, shape: tuple[int, ...], wanted: str, *, dtype: str = "BF16", draft: bool = False
) -> Choice:
    return choose(Tensor(name, dtype, shape), request_for(row(wanted), CONFIG), draft=draft)


@pytest.mark.parametrize(
    ("wanted", "width", "fits"),
    [
        *[(name, 128, True) for name in ("q2", "q3", "q4", "q5", "q6", "q8", "mxfp4", "mxfp8", "nvfp4")],
        *[(name, 96, False) for name in ("q4", "q8")],
        *[(name, 96, True) for name in ("mxfp4", "mxfp8", "nvfp4")],
        *[(name, 48, False) for name in ("q4", "mxfp4", "mxfp8")],
        ("nvfp4", 48, True),
        ("nvfp4", 24, False),
    ],
)
def test_rows_must_divide_into_whole_groups(wanted: str, width: int, fits: bool) -> None:
    assert (fate(f"{LAYER}self_attn.q_proj.weight", (256, width), wanted) == wanted) is fits


def test_a_third_of_thirty_layers_gets_more_bits() -> None:
    chosen = {layer for layer in range(30) if more_bits(layer, 30)}
    assert chosen == {0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 26, 27, 28, 29}


def test_every_third_layer_counts_from_the_end_of_the_first_eighth() -> None:
    assert more_bits(8, 52)
    assert not more_bits(6, 52)


def test_what_lies_beside_a_norm_is_none() -> None:
    block = "transformer.blocks.0.norm_attn_norm"
    assert fate(f"{block}.attn.Wqkv.weight", (256, 256), "q4") == "q4"
    assert decide(f"{block}.norm_1.weight", (256, 256), "q4").reason == "norm"


@pytest.mark.parametrize("matrix", ["self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj"])
def test_robust_matrices_get_what_was_asked_for(matrix: str) -> None:
    assert fate(f"{LAYER}{matrix}.weight", (256, 256), "q4") == "q4"


@pytest.mark.parametrize("matrix", ["in_proj", "out_proj"])
def test_matrices_beside_the_filter_of_a_short_convolution_are_matrices(matrix: str) -> None:
    """LFM2 calls both and the filter `conv`."""
    assert fate(f"{LAYER}conv.{matrix}.weight", (256, 256), "q4") == "q4"
    assert decide(f"{LAYER}conv.conv.weight", (256, 64), "q4").reason == "convolution"


@pytest.mark.parametrize("matrix", ["self_attn.v_proj", "self_attn.k_proj", "mlp.down_proj"])
@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        *[(name, "q8") for name in ("q2", "q3", "q4", "q5", "q8")],
        *[(name, "mxfp8") for name in ("mxfp4", "nvfp4", "mxfp8")],
        ("q6", "q6"),
    ],
)
def test_sensitive_matrices_of_low_formats_are_promoted(matrix: str, wanted: str, given: str) -> None:
    assert fate(f"{LAYER}{matrix}.weight", (256, 256), wanted) == given


@pytest.mark.parametrize(
    ("wanted", "given"), [("q4", "q8"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"), ("q8", "q8")]
)
def test_expert_stacks_are_promoted_in_affine_formats_only(wanted: str, given: str) -> None:
    assert fate(f"{LAYER}mlp.experts.down_proj.weight", (8, 256, 256), wanted) == given


def test_an_expert_stack_needs_no_weight_suffix() -> None:
    assert fate(f"{LAYER}mlp.experts.gate_up_proj", (8, 256, 256), "q4") == "q4"


@pytest.mark.parametrize(
    "name", ["lm_head.weight", "model.embed_tokens.weight", "backbone.embeddings.weight"]
)
@pytest.mark.parametrize(
    ("wanted", "given"),
    [("q2", "q8"), ("q4", "q8"), ("q6", "q8"), ("q8", "q8"), ("mxfp4", "mxfp8"), ("nvfp4", "mxfp8")],
)
def test_head_and_embedding_get_eight_bits(name: str, wanted: str, given: str) -> None:
    assert fate(name, (4096, 256), wanted) == given


@pytest.mark.parametrize("name", ["lm_head.weight", "model.embed_tokens.weight"])
def test_a_drafts_head_and_embedding_get_what_was_asked_for(name: str) -> None:
    assert fate(name, (4096, 2048), "q8", draft=True) == "q8"
    assert fate(name, (4096, 2048), "nvfp4", draft=True) == "nvfp4"
    assert fate(name, (4096, 2049), "q8", draft=True) == "source"


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("model.norm.weight", (4096,), "norm"),
        (f"{LAYER}input_layernorm.weight", (4096,), "norm"),
        (f"{LAYER}self_attn.q_proj.bias", (4096,), "bias"),
        (f"{LAYER}mlp.experts.gate_up_proj_bias", (32, 5760), "bias"),
        (f"{LAYER}mlp.gate.weight", (64, 256), "router"),
        (f"{LAYER}mlp.shared_expert_gate.weight", (64, 256), "router"),
        (f"{LAYER}router.proj.weight", (64, 256), "router"),
        (f"{LAYER}mlp.router.weight", (64, 256), "router"),
        (f"{LAYER}mlp.gate.wg.weight", (64, 256), "router"),
        (f"{LAYER}mlp.router.classifier.weight", (64, 256), "router"),
        (f"{LAYER}mlp.gate.router_mlp.fc1.weight", (256, 256), "router"),
        (f"{LAYER}block_sparse_moe.primary_router.weight", (64, 256), "router"),
        (f"{LAYER}mixer.A_log", (4096,), "parameter that is not a matrix"),
        (f"{LAYER}mixer.conv1d.weight", (256, 1, 64), "convolution"),
        ("model.visual.blocks.0.attn.proj.weight", (256, 256), "vision tower"),
        ("vision_tower.encoder.layers.0.mlp.fc1.weight", (256, 256), "vision tower"),
        ("audio_tower.layers.0.proj.weight", (256, 256), "audio tower"),
        ("model.embed_positions.weight", (256, 256), "auxiliary embedding"),
        ("transformer.wpe.weight", (256, 256), "auxiliary embedding"),
        (f"{LAYER}mlp.gate_proj.weight", (8, 64), "fewer than 1024 elements"),
        (f"{LAYER}mlp.gate_proj.weight", (4, 256, 256), "not a matrix"),
    ],
)
def test_what_stays_at_source_precision_says_why(name: str, shape: tuple[int, ...], why: str) -> None:
    assert decide(name, shape, "q4") == Choice(None, why)


def test_a_misaligned_matrix_stays_and_names_the_group() -> None:
    assert decide(f"{LAYER}self_attn.v_proj.weight", (1024, 48), "q4") == Choice(
        None, "rows of 48 elements do not divide into groups of 64"
    )


def test_a_promotion_that_does_not_fit_falls_back_to_the_request() -> None:
    assert fate(f"{LAYER}self_attn.v_proj.weight", (1024, 48), "nvfp4") == "nvfp4"


@pytest.mark.parametrize("wanted", ["f32", "f16", "bf16"])
def test_a_cast_takes_every_float_but_decays_and_corrections(wanted: str) -> None:
    assert fate("model.norm.weight", (4096,), wanted, dtype="F32") == wanted
    assert fate(f"{LAYER}mixer.A_log", (64,), wanted, dtype="F32") == "source"
    assert fate(f"{LAYER}mlp.gate.e_score_correction_bias", (64,), wanted, dtype="F32") == "source"
    assert fate("model.position_ids", (64,), wanted, dtype="I64") == "source"


@given(
    name=st.sampled_from(["lm_head.weight", f"{LAYER}mlp.down_proj.weight", f"{LAYER}mlp.experts.up_proj"]),
    shape=st.lists(st.integers(0, 512), max_size=4).map(tuple),
    wanted=st.sampled_from(FORMATS),
    draft=st.booleans(),
)
def test_a_chosen_format_always_fits_and_every_choice_has_a_reason(
    name: str, shape: tuple[int, ...], wanted: Format, draft: bool
) -> None:
    chosen = choose(Tensor(name, "BF16", shape), request_for(wanted, {}), draft=draft)
    assert chosen.reason
    assert chosen.format is None or chosen.format.fits(shape)
