"""Keys that a file leaves out, or says 0 for, mean what llama.cpp takes them for (by its logits, once)."""

from typing import Any

import numpy as np
import pytest

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.architectures.kinds import BY_LAYER
from runtime.config.text import text_config
from runtime.models import find_family
from tests.support.gguf_entries import ABSENT
from tests.support.gguf_references import GgufReference, describe, differences, loaded, read, undone


def _config(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """config.json of the reference's file with these keys of its architecture; None: without."""
    reference = GgufReference(name)
    prefix = reference.metadata["general.architecture"]
    metadata = {**reference.metadata, **{f"{prefix}.{key}": value for key, value in changes.items()}}
    told = {key: value for key, value in metadata.items() if value is not None}
    config = read(told, reference.shapes, reference.exported, "model.gguf").config
    return {**config, **config.get("rope_parameters", {})}


@pytest.mark.parametrize(
    ("name", "changes", "field", "meant"),
    [
        ("llama", {"rope.scaling.factor": 4.0}, "rope_type", "linear"),
        ("qwen3", {"rope.scale_linear": 4.0}, "factor", 4.0),
        ("llama", {"rope.scaling.type": "linear", "rope.scale_linear": 4.0}, "rope_type", "linear"),
        ("llama_yarn_rope", {"rope.scaling.type": None}, "rope_type", "linear"),
        ("llama", {"rope.scaling.factor": 0.0}, "rope_type", "default"),
        ("llama", {"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, "rope_type", "default"),
        ("granite", {"attention.scale": None}, "attention_multiplier", 16**-0.5),
        ("granitemoe", {"attention.scale": 0.0}, "attention_multiplier", 16**-0.5),
        ("granite", {"embedding_scale": 0.0}, "embedding_multiplier", 1.0),
        ("granitemoehybrid", {"residual_scale": 0.0}, "residual_multiplier", 1.0),
        ("glm4_moe", {"expert_weights_scale": None}, "routed_scaling_factor", 1.0),
        ("deepseek_v3", {"expert_weights_scale": 0.0}, "routed_scaling_factor", 1.0),
        ("glm4_moe", {"expert_weights_norm": None}, "norm_topk_prob", False),
        ("cohere2_moe", {"expert_gating_func": None}, "expert_selection_fn", "sigmoid"),
        ("phi3_longrope", {"rope.scaling.attn_factor": None}, "attention_factor", 1.0),
        ("nemotron_h", {"attention.layer_norm_rms_epsilon": 0.25}, "layer_norm_epsilon", 0.25),
        ("ministral3", {"rope.scaling.yarn_log_multiplier": 2.0}, "mscale", 1.0),
        ("gemma3", {"attention.sliding_window": None}, "sliding_window", None),
        ("gemma4", {"final_logit_softcapping": None}, "final_logit_softcapping", 30.0),
        ("gemma4", {"final_logit_softcapping": 0.0}, "final_logit_softcapping", None),
        ("cohere2", {"logit_scale": 0.0}, "logit_scale", 1.0),
        ("cohere", {"logit_scale": None}, "logit_scale", 1.0),
        ("qwen2_moe", {"expert_feed_forward_length": None}, "moe_intermediate_size", 32),
        ("qwen2_moe", {"expert_shared_feed_forward_length": None}, "shared_expert_intermediate_size", 48),
        ("qwen3_5_moe", {"expert_feed_forward_length": None}, "moe_intermediate_size", 32),
        (
            "nemotron_h",
            {"expert_shared_feed_forward_length": None},
            "moe_shared_expert_intermediate_size",
            48,
        ),
        ("mimo_v2_flash", {"attention.value_scale": 0.0}, "attention_value_scale", 1.0),
    ],
)
def test_what_is_left_out_is_what_llama_cpp_takes(
    name: str, changes: dict[str, Any], field: str, meant: Any
) -> None:
    assert _config(name, changes).get(field) == meant


@pytest.mark.parametrize("name", ["llama", "qwen3_moe", "gemma3", "gemma4", "laguna", "lfm2", "kimi_linear"])
def test_a_number_that_all_layers_have_may_be_listed(name: str) -> None:
    """As llama.cpp reads it."""
    metadata, kind = GgufReference(name).metadata, GgufReference(name).record["architecture"]
    told = {key: metadata.get(f"{kind}.{key}") for key in BY_LAYER}
    blocks = metadata[f"{kind}.block_count"]
    lists = {key: [value] * blocks for key, value in told.items() if type(value) is int}
    assert lists
    assert _config(name, lists) == _config(name, {})


@pytest.mark.parametrize(
    "told",
    [["attn_q", "attn_k", "attn_v"], ["attn_output"], ["ffn_down"], ["ffn_up", "attn_k"]],
    ids=lambda told: told[-1],
)
def test_biases_of_some_matrices_alone_are_all_that_there_are(told: list[str]) -> None:
    """As llama.cpp adds them; a config says only that a layer's attention, or its MLP, has biases."""
    reference = GgufReference("llama_biases_tied")
    biases = {name for name in reference.shapes if name.endswith(".bias")}
    gone = {name for name in biases if name.split(".")[2] not in told}
    shapes = {name: shape for name, shape in reference.shapes.items() if name not in gone}
    found = read(reference.metadata, shapes, reference.exported, "model.gguf")
    zeros = {name: np.zeros_like(array) for name, array in reference.exported.items() if name in gone}
    _, ours = loaded(found.config, undone(found, reference.exported))
    _, wanted = loaded(reference.imported.config, undone(reference.imported, reference.exported | zeros))
    assert {name for name, array in ours.items() if array.any()} == {
        name for name, array in wanted.items() if array.any()
    }
    assert not differences(ours, {name: array for name, array in wanted.items() if name in ours})
    parsed = find_family(found.config).parse(found.config)
    assert parsed.qkv_bias == any(part.startswith("attn") for part in told)


def test_settings_of_experts_say_nothing_where_there_are_none() -> None:
    assert _config("llama", {"expert_count": 0, "expert_used_count": 0}) == _config("llama", {})


@pytest.mark.parametrize("name", ["cohere2", "exaone_moe", "gemma2", "olmo3"])
def test_a_pattern_of_zero_is_a_window_everywhere(name: str) -> None:
    config = _config(name, {"attention.sliding_window_pattern": 0})
    assert set(config["layer_types"]) == {"sliding_attention"}


def test_the_base_of_windows_that_is_left_out_is_llama_cpps() -> None:
    config = _config("mimo_v2_flash", {"rope.freq_base": 500.0, "rope.freq_base_swa": None})
    assert config["sliding_attention"]["rope_theta"] == 10000.0


def test_windows_that_are_left_out_are_llama_cpps() -> None:
    config = _config("cohere2_moe", {"attention.sliding_window_pattern": None})
    assert [kind == "full_attention" for kind in config["layer_types"]] == [
        place % 4 == 0 for place in range(config["num_hidden_layers"])
    ]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama_llama3_rope", {"rope.scaling.factor": 4.0}),
        ("apertus", {"rope.freq_base": 0.0}),
        ("llama", {"rope.freq_base": float("nan")}),
        ("llama", {"attention.layer_norm_rms_epsilon": float("inf")}),
        ("gemma4", {"rope.dimension_count": 2}),
        ("gemma4", {"rope.dimension_count_swa": 2}),
        ("ministral3", {"rope.scaling.type": None}),
        ("llama", {"rope.scaling.type": "yarn"}),
        ("muse_glimmer", {"rope.scaling.factor": 4.0}),
        ("glm4_moe_lite", {"rope.scaling.factor": 4.0}),
        ("gemma3", {"rope.dimension_count": 4}),
        ("gemma3", {"rope.dimension_count_swa": 4}),
        ("granite", {"rope.scaling.finetuned": False}),
        ("cohere2_moe", {"expert_gating_func": 1, "expert_weights_norm": None}),
        ("laguna", {"attention.sliding_window_pattern": 2}),
        ("laguna", {"expert_weights_norm": None}),
    ],
)
def test_what_no_config_can_say_is_refused(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises((MalformedFile, UnsupportedSource), match=r"^model\.gguf: "):
        _config(name, changes)


def _written(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Metadata of the reference's checkpoint with these fields in its config."""
    reference = GgufReference(name)
    changed = {**text_config(reference.config), **changes}
    config = {name: value for name, value in changed.items() if value is not ABSENT}
    return dict(describe(config, reference.package, name).metadata)


_TOGETHER = {
    "model_max_length": ("max_position_embeddings",),
    "first_k_dense_replace": ("mlp_layer_types",),
}
"""Fields that say the same thing again."""


@pytest.mark.parametrize(
    ("name", "field", "key", "meant"),
    [
        ("llama", "max_position_embeddings", "llama.context_length", 2048),
        ("llama", "rms_norm_eps", "llama.attention.layer_norm_rms_epsilon", 1e-6),
        ("kimi_linear", "model_max_length", "kimi-linear.context_length", 1048576),
        ("gemma", "head_dim", "gemma.attention.key_length", 256),
        ("ernie4_5", "num_key_value_heads", "ernie4_5.attention.head_count_kv", 2),
        ("deepseek_v3", "n_shared_experts", "deepseek2.expert_shared_count", 1),
        ("deepseek_v3", "routed_scaling_factor", "deepseek2.expert_weights_scale", 2.5),
        ("deepseek_v3", "norm_topk_prob", "deepseek2.expert_weights_norm", True),
        ("deepseek_v32", "first_k_dense_replace", "deepseek32.leading_dense_block_count", 3),
        ("dots1", "moe_intermediate_size", "dots1.expert_feed_forward_length", 1408),
        ("glm4_moe", "n_shared_experts", "glm4moe.expert_shared_count", 1),
        ("olmoe", "num_experts", "olmoe.expert_count", 64),
        ("cohere2", "sliding_window", "cohere2.attention.sliding_window", 4096),
        ("gpt_oss", "rope_parameters", "gpt-oss.rope.scaling.factor", 32.0),
        ("gemma4", "rope_parameters", "gemma4.rope.freq_base", 1e6),
        ("phimoe", "rope_parameters", "phimoe.rope.freq_base", 1e6),
        ("falcon_7b", "num_hidden_layers", "falcon.block_count", 32),
        ("qwen2_5_vl", "rms_norm_eps", "qwen2.attention.layer_norm_rms_epsilon", 1e-5),
        ("qwen3_vl", "max_position_embeddings", "qwen3.context_length", 128000),
    ],
)
def test_what_a_config_leaves_out_is_told_as_its_class_takes_it(
    name: str, field: str, key: str, meant: Any
) -> None:
    gone = (field, *_TOGETHER.get(field, ()))
    assert _written(name, dict.fromkeys(gone, ABSENT))[key] == meant


def test_layers_that_a_config_does_not_list_are_those_of_its_class() -> None:
    gone = dict.fromkeys(("layer_types", "sliding_window_pattern"), ABSENT)
    assert _written("cohere2", gone) == _written("cohere2", {})


def test_a_bound_that_a_config_denies_is_told_or_refused() -> None:
    assert _written("gemma4", {"final_logit_softcapping": None})["gemma4.final_logit_softcapping"] == 0.0
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        with pytest.raises(UnsupportedSource, match=f"{name} is null, which GGUF cannot say for gemma2"):
            _written("gemma2", {name: None})


def test_a_softmax_over_the_chosen_is_told_as_one() -> None:
    changes = {"expert_selection_fn": "softmax", "norm_topk_prob": False}
    assert _written("cohere2_moe", changes)["cohere2moe.expert_weights_norm"] is True
    changes["expert_selection_fn"] = "sigmoid"
    assert _written("cohere2_moe", changes)["cohere2moe.expert_weights_norm"] is False


@pytest.mark.parametrize("kind", ["linear", "llama3"])
def test_a_rotation_that_nobody_computes_is_still_told_whole(kind: str) -> None:
    block = {"rope_theta": 10000.0, "rope_type": kind}
    with pytest.raises(UnsupportedSource, match="and factor is not told"):
        _written("granitemoehybrid", {"rope_parameters": block})


def test_a_share_that_is_null_is_the_usual_one() -> None:
    block = {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": None}
    usual = _written("gpt_neox", {"rope_parameters": {"rope_theta": 10000.0}, "rotary_pct": None})
    written = _written("gpt_neox", {"rope_parameters": block, "rotary_pct": None})
    assert written["gptneox.rope.dimension_count"] == usual["gptneox.rope.dimension_count"] == 4
