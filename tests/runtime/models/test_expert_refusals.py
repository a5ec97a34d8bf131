"""What a family with experts would compute wrongly is refused by name, before a weight is read."""

from typing import Any

import pytest

from runtime.errors import UnsupportedModel
from runtime.models.architecture import describe
from tests.support.parity import Reference

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("qwen2_moe", {"layer_types": None}, "use_sliding_window"),
    ("qwen3_moe", {"mlp_only_layers": 3}, "mlp_only_layers"),
    ("qwen3_moe", {"num_experts_per_tok": 99}, "num_experts_per_tok"),
    ("mixtral", {"hidden_act": "gelu_python"}, "hidden_act"),
    ("phimoe", {"num_experts_per_tok": 1}, "num_experts_per_tok"),
    ("gpt_oss", {"layer_types": ["full_attention"]}, "layer_types"),
    ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob"),
    ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method"),
    ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func"),
    ("deepseek_v3", {"topk_method": "greedy"}, "topk_method"),
    ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq"),
    ("deepseek_v3", {"n_group": 3}, "n_group"),
    ("deepseek_v32", {"layer_types": ["full_attention"] * 3}, "layer_types"),
    ("glm4_moe", {"n_group": 3}, "n_group"),
    ("cohere2_moe", {"expert_selection_fn": "tanh"}, "expert_selection_fn"),
    ("cohere2_moe", {"shared_expert_combination_strategy": "max"}, "shared_expert_combination_strategy"),
    ("laguna", {"moe_router_logit_softcapping": 30.0}, "moe_router_logit_softcapping"),
    ("laguna", {"gating": "per-row"}, "gating"),
    ("laguna", {"num_attention_heads_per_layer": [4, 3, 4, 4]}, "num_attention_heads_per_layer"),
    ("mimo_v2_flash", {"add_full_attention_sink_bias": True}, "add_full_attention_sink_bias"),
    ("mimo_v2_flash", {"swa_head_dim": 8}, "swa_head_dim"),
]


@pytest.mark.parametrize(("name", "change", "words"), REFUSED, ids=lambda part: str(part)[:40])
def test_refused(name: str, change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        describe({**Reference(name).record["config"], **change})


def test_phimoe_takes_one_temperature_for_short_and_long() -> None:
    config = Reference("phimoe").record["config"]
    block = {**config["rope_parameters"], "long_mscale": 1.3}
    with pytest.raises(UnsupportedModel, match="long_mscale"):
        describe({**config, "rope_parameters": block})


def test_muse_glimmer_has_one_base() -> None:
    config = Reference("muse_glimmer").record["config"]
    text = {**config["text_config"], "layer_rope_theta": [10000.0, 5000.0, 10000.0, 0]}
    with pytest.raises(UnsupportedModel, match="layer_rope_theta"):
        describe({**config, "text_config": text})


def test_mimo_as_published_is_mimo_as_transformers_says_it() -> None:
    config = dict(Reference("mimo_v2_flash").record["config"])
    wanted = describe(config)
    for name in ("layer_types", "mlp_layer_types", "rope_parameters", "sliding_window", "rms_norm_eps"):
        del config[name]
    published = {
        "hybrid_layer_pattern": [0, 1, 1],
        "moe_layer_freq": [0, 1, 1],
        "rope_theta": 5000000.0,
        "swa_rope_theta": 10000.0,
        "partial_rotary_factor": 0.334,
        "sliding_window_size": 11,
        "layernorm_epsilon": 1e-05,
        "routed_scaling_factor": None,
        "swa_num_key_value_heads": 4,
    }
    assert describe({**config, **published}) == wanted
