"""One claim per family: where its rows differ from the generic ones."""

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from modelkit.pack.planning.families import checkpoint_of, request_for
from modelkit.pack.planning.plan import plan
from modelkit.pack.planning.policy import choose
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import FloatWeights
from runtime.models import describe
from runtime.quality.owners import owners
from runtime.quant import find_format
from runtime.tensors.checkpoint import PLAIN
from runtime.tensors.quantizing import Tensor, more_bits
from tests.runtime.models.test_quantized import one_of_each
from tests.runtime.models.test_spellings import SPELLINGS
from tests.support.parity import Reference, scales_head

SENSITIVE, ROBUST = 8, 9  # of 30 layers, one that gets more bits and one that does not


def fate(config: dict[str, Any], name: str, wanted: str, shape: tuple[int, ...] = (256, 256)) -> str:
    row = find_format(wanted)
    assert row is not None
    full = {"num_hidden_layers": 30, **config}
    chosen = choose(Tensor(name, "BF16", shape), request_for(row, full), checkpoint_of(full).rows)
    return chosen.format.name if chosen.format else "source"


GEMMA = {"architectures": ["Gemma4ForCausalLM"]}


@pytest.mark.parametrize(
    ("named", "module"),
    [
        ({"architectures": ["Gemma4UnifiedForConditionalGeneration"]}, "gemma4"),
        ({"model_type": "gemma4_unified_text"}, "gemma4"),
        ({"architectures": ["Gemma4AssistantForCausalLM"]}, "gemma4"),
        ({"architectures": ["Qwen3_5MoeForConditionalGeneration"]}, "qwen3_5"),
        ({"architectures": ["NemotronH_Nano_VL_V2"]}, "nemotron_h"),
        ({"model_type": "laguna"}, "laguna"),
        ({"architectures": ["DFlashLagunaForCausalLM"], "model_type": "laguna"}, "laguna"),
        ({"architectures": ["Cohere2MoeForCausalLM"]}, "cohere2_moe"),
        ({"architectures": ["MuseGlimmerForConditionalGeneration"]}, "muse_glimmer"),
        ({"architectures": ["GptOssForCausalLM"]}, "gpt_oss"),
    ],
)
def test_a_family_is_known_by_its_name(named: dict[str, Any], module: str) -> None:
    record = import_module(f"runtime.models.{module}").FAMILY
    assert checkpoint_of(named) == record.checkpoint({}) != PLAIN


@pytest.mark.parametrize("config", [{}, {"architectures": []}, {"architectures": "x"}, {"model_type": 3}])
def test_other_models_have_the_plain_family(config: dict[str, Any]) -> None:
    assert checkpoint_of(config) is PLAIN


def test_gemma4_promotes_v_and_down_in_sensitive_layers_only() -> None:
    for matrix in ("self_attn.v_proj.weight", "mlp.down_proj.weight"):
        assert fate(GEMMA, f"model.layers.{SENSITIVE}.{matrix}", "q4") == "q8"
        assert fate(GEMMA, f"model.layers.{ROBUST}.{matrix}", "q4") == "q4"


def test_gemma4_promotes_k_only_with_eight_experts() -> None:
    name = f"model.layers.{SENSITIVE}.self_attn.k_proj.weight"
    assert fate(GEMMA, name, "q4") == "q4"
    assert fate({**GEMMA, "num_experts": 8}, name, "q4") == "q8"


def test_gemma4_promotes_experts_of_float_formats_too() -> None:
    name = f"model.layers.{SENSITIVE}.experts.down_proj"
    assert fate(GEMMA, name, "mxfp4", (4, 256, 256)) == "mxfp8"


def test_gemma4_embedding_falls_back_to_the_request() -> None:
    assert fate(GEMMA, "model.embed_tokens.weight", "nvfp4", (4096, 48)) == "nvfp4"


@pytest.mark.parametrize("gate", ["in_proj_a", "in_proj_b", "in_proj_ba"])
def test_qwen_state_gates_stay(gate: str) -> None:
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"]}
    assert fate(config, f"model.language_model.layers.0.linear_attn.{gate}.weight", "q4") == "source"
    assert fate(config, "model.language_model.layers.0.linear_attn.in_proj_qkv.weight", "q4") == "q4"


NEMOTRON = {"architectures": ["NemotronHForCausalLM"]}


@pytest.mark.parametrize("matrix", ["q_proj", "k_proj", "v_proj", "o_proj"])
def test_nemotron_attention_gets_eight_bits_in_float_formats(matrix: str) -> None:
    assert fate(NEMOTRON, f"backbone.layers.{ROBUST}.mixer.{matrix}.weight", "nvfp4") == "mxfp8"


def test_nemotron_out_and_down_follow_the_layer() -> None:
    for matrix in ("out_proj", "down_proj", "experts.down_proj"):
        name = f"mixer.{matrix}.weight"
        assert fate(NEMOTRON, f"backbone.layers.{SENSITIVE}.{name}", "nvfp4") == "mxfp8"
        assert fate(NEMOTRON, f"backbone.layers.{ROBUST}.{name}", "nvfp4") == "nvfp4"


def test_nemotron_affine_formats_are_generic() -> None:
    assert fate(NEMOTRON, f"backbone.layers.{ROBUST}.mixer.down_proj.weight", "q4") == "q8"


def test_nemotron_projectors_stay() -> None:
    assert fate(NEMOTRON, "mlp1.1.weight", "q4") == "source"


LAGUNA = {"model_type": "laguna", "num_hidden_layers": 40, "mlp_layer_types": ["dense"] + ["sparse"] * 39}
CADENCE, PLAIN_LAYER = 7, 6  # of 40: (7 - 5) % 3 == 2


def test_laguna_attention_stays_in_eight_bit_requests() -> None:
    name = "model.layers.6.self_attn.q_proj.weight"
    assert fate(LAGUNA, name, "mxfp4") == "mxfp4"
    assert fate(LAGUNA, name, "mxfp8") == "source"


def test_laguna_dense_mlp_is_quantized_in_dense_layers_only() -> None:
    assert fate(LAGUNA, "model.layers.0.mlp.down_proj.weight", "mxfp4") == "mxfp4"
    assert fate(LAGUNA, "model.layers.6.mlp.down_proj.weight", "mxfp4") == "source"


def test_laguna_shared_down_follows_the_layer() -> None:
    name = "model.layers.{}.mlp.shared_expert.down_proj.weight"
    assert fate(LAGUNA, name.format(CADENCE), "nvfp4") == "mxfp8"
    assert fate(LAGUNA, name.format(PLAIN_LAYER), "nvfp4") == "nvfp4"
    assert fate(LAGUNA, name.format(CADENCE), "mxfp8") == "source"


def test_laguna_routed_experts_keep_their_down_projection_wide_at_eight_bits() -> None:
    name = "model.layers.{}.mlp.experts.down_proj.weight"
    assert fate(LAGUNA, name.format(CADENCE), "mxfp8", (4, 256, 256)) == "source"
    assert fate(LAGUNA, name.format(PLAIN_LAYER), "mxfp8", (4, 256, 256)) == "mxfp8"
    assert fate(LAGUNA, name.format(CADENCE), "mxfp4", (4, 256, 256)) == "mxfp4"


def test_laguna_cadence_ends_before_the_middle() -> None:
    assert more_bits(13, 40, cadence_end=16)
    assert not more_bits(16, 40, cadence_end=16)
    assert more_bits(16, 40)


def test_laguna_affine_formats_are_generic() -> None:
    assert fate(LAGUNA, "model.layers.6.self_attn.v_proj.weight", "q4") == "q8"


def test_cohere_moe_promotes_in_sensitive_layers_only() -> None:
    config = {"architectures": ["Cohere2MoeForCausalLM"]}
    assert fate(config, f"model.layers.{SENSITIVE}.self_attn.k_proj.weight", "q4") == "q8"
    assert fate(config, f"model.layers.{ROBUST}.self_attn.k_proj.weight", "q4") == "q4"


def test_glimmer_attention_always_gets_eight_bits() -> None:
    config = {"architectures": ["MuseGlimmerForConditionalGeneration"]}
    assert fate(config, f"model.layers.{ROBUST}.self_attn.q_proj.weight", "q4") == "q8"
    assert fate(config, f"model.layers.{ROBUST}.mlp.down_proj.weight", "q4") == "q4"
    assert fate(config, f"model.layers.{SENSITIVE}.mlp.down_proj.weight", "q4") == "q8"


def test_stacked_experts_are_quantized_in_every_family() -> None:
    config = {"architectures": ["GptOssForCausalLM"]}
    assert fate(config, "model.layers.0.mlp.experts.gate_proj", "q4", (4, 256, 512)) == "q4"


def test_facts_are_found_in_nested_configs() -> None:
    row = find_format("q4")
    assert row is not None
    request = request_for(row, {"text_config": {"num_hidden_layers": 12, "num_experts": 8}})
    assert (request.layers, request.experts) == (12, 8)


@pytest.mark.parametrize("name", one_of_each())
def test_what_a_network_joins_has_one_format(name: str) -> None:
    record, row = Reference(name).record, find_format("q4g32")
    assert row is not None
    config, shapes = record["config"], {name: tuple(shape) for name, shape in record["tensors"].items()}
    request, rows = request_for(row, config), checkpoint_of(config).rows
    for module, parts in owners(describe(config), shapes).items():
        if module == "lm_head" and scales_head(config):
            continue  # scaled by its own numbers: nobody says whose rows it has
        chosen = {choose(Tensor(part, "F32", shapes[part]), request, rows).format for part in parts}
        assert len(chosen) == 1, (module, parts, chosen)


PUBLISHED = [name for name in SPELLINGS if not name.endswith(("by MLX", "repeated"))]


@pytest.mark.parametrize("spelling", PUBLISHED)
def test_what_is_packed_does_not_depend_on_the_spelling(
    spelling: str, inventory_of: Callable[..., Inventory]
) -> None:
    """Transformers saves a model under other names than it computes by: those of published files."""
    name, respell = SPELLINGS[spelling]
    record, row = Reference(name).record, find_format("q4g32")
    assert row is not None
    state = {key: np.zeros(shape, np.float32) for key, shape in record["tensors"].items()}
    config = {key: value for key, value in record["config"].items() if key != "dtype"}

    def packed(tensors: Mapping[str, np.ndarray]) -> int:
        shapes = {key: ("F32", array.shape) for key, array in tensors.items() if "visual" not in key}
        made = plan(inventory_of(shapes, config), FloatWeights(), row, plain=True)
        return sum(math.prod(one.shape) for one in made.tensors if one.encode)

    spelled = respell(state)
    assert packed(spelled) == packed(state), sorted(set(spelled) - set(state))[:4]


def test_gpt_neox_has_other_names_for_table_and_head() -> None:
    config = {"model_type": "gpt_neox"}
    assert fate(config, "gpt_neox.embed_in.weight", "q4") == "q8"
    assert fate(config, "embed_out.weight", "q4") == "q8"


def test_chatglm_has_other_names_for_table_and_head() -> None:
    config = {"model_type": "chatglm"}
    assert fate(config, "transformer.embedding.word_embeddings.weight", "q4") == "q8"
    assert fate(config, "transformer.output_layer.weight", "q4") == "q8"


def test_internlm2_has_other_names_for_table_and_head() -> None:
    config = {"model_type": "internlm2"}
    assert fate(config, "model.tok_embeddings.weight", "q4") == "q8"
    assert fate(config, "output.weight", "q4") == "q8"


def test_the_gate_of_rwkv_is_no_router_and_its_head_a_head() -> None:
    assert fate({"model_type": "rwkv6"}, "head.weight", "q4", (65536, 2048)) == "q8"
    assert fate({"model_type": "rwkv6"}, "rwkv.blocks.9.attention.gate.weight", "q4") == "q4"


def test_xlstm_keeps_the_gates_of_its_states() -> None:
    name = "backbone.blocks.3.mlstm_layer.fgate_preact.weight"
    assert fate({"model_type": "xlstm"}, name, "q4", (8, 4096)) == "source"


def test_granite_keeps_its_router() -> None:
    name = "model.layers.0.block_sparse_moe.router.layer.weight"
    assert fate({"model_type": "granitemoe"}, name, "q4", (32, 1024)) == "source"


@pytest.mark.parametrize("at", ["self_attn", "attention"])  # transformers' own name, and that in files
def test_ling_stores_what_it_joins_in_one_format(at: str) -> None:
    names = [f"model.layers.9.{at}.{part}_proj.weight" for part in "qkv"]
    assert {fate({"model_type": "bailing_hybrid"}, name, "q4") for name in names} == {"q4"}
    assert fate({"model_type": "llama"}, names[-1], "q4") == "q8"
