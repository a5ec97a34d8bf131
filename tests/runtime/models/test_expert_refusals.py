"""What a family with experts would compute wrongly is refused by name, before a weight is read."""

from typing import Any

import pytest

from runtime.errors import UnsupportedModel
from runtime.models.registry.described import describe
from tests.support.parity import Reference

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("qwen2_moe", {"layer_types": None}, "use_sliding_window"),
    ("qwen3_moe", {"mlp_only_layers": 3}, "mlp_only_layers"),
    ("qwen3_moe", {"num_experts_per_tok": 99}, "num_experts_per_tok"),
    ("granitemoehybrid", {"num_experts_per_tok": 0}, "num_experts_per_tok"),
    ("granitemoehybrid", {"num_experts_per_tok": 99}, "num_experts_per_tok"),
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
    ("glm_moe_dsa", {"indexer_types": ["shared", "full", "full"]}, "indexer_types"),
    ("glm_moe_dsa", {"indexer_types": None, "index_topk_pattern": "FSX"}, "index_topk_pattern"),
    ("glm_moe_dsa", {"indexer_types": None, "index_topk_pattern": 3}, "index_topk_pattern"),
    ("glm_moe_dsa", {"indexer_types": None, "index_topk_pattern": [["full"]] * 3}, "index_topk_pattern"),
    ("hunyuan_moe", {"moe_topk": [3, 2, 4]}, "moe_topk"),
    ("hunyuan_moe", {"moe_topk": [3, 2, 4, 9]}, "moe_topk"),
    ("glm4_moe", {"n_group": 3}, "n_group"),
    ("cohere2_moe", {"expert_selection_fn": "tanh"}, "expert_selection_fn"),
    ("cohere2_moe", {"shared_expert_combination_strategy": "max"}, "shared_expert_combination_strategy"),
    ("laguna", {"moe_router_logit_softcapping": 30.0}, "moe_router_logit_softcapping"),
    ("laguna", {"gating": "per-row"}, "gating"),
    ("laguna", {"num_attention_heads_per_layer": [4, 3, 4, 4]}, "num_attention_heads_per_layer"),
    ("dbrx", {"tie_word_embeddings": True}, "tie_word_embeddings"),
    ("dbrx", {"attn_config": "grouped"}, "attn_config is 'grouped'"),
    ("dbrx", {"attn_config": {"kv_n_heads": 3}}, "attn_config.kv_n_heads is 3"),
    ("dbrx", {"attn_config": {"clip_qkv": -1.0}}, "attn_config.clip_qkv"),
    ("dbrx", {"attn_config": {"rope_theta": 5e5}}, "attn_config.rope_theta is 500000.0, expected 10000 as"),
    ("dbrx", {"ffn_config": {"moe_top_k": 9}}, "ffn_config.moe_top_k"),
    ("dbrx", {"ffn_config": {"moe_normalize_expert_weights": 2.0}}, "moe_normalize_expert_weights"),
    ("dbrx", {"ffn_config": {"uniform_expert_assignment": True}}, "uniform_expert_assignment"),
    ("dbrx", {"ffn_config": {"ffn_act_fn": {"name": "tanh"}}}, "ffn_config.ffn_act_fn.name"),
    ("dbrx", {"ffn_config": {"ffn_act_fn": {"name": "gelu", "approximate": "tanh"}}}, "ffn_act_fn"),
    ("afmoe", {"score_func": "softmax"}, "score_func"),
    ("afmoe", {"route_norm": False}, "route_norm"),
    ("afmoe", {"n_group": 2}, "n_group"),
    ("afmoe", {"layer_types": ["full_attention"]}, "layer_types"),
    ("mellum", {"mlp_layer_types": ["sparse"] * 3}, "mlp_layer_types"),
    ("mellum", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling"),
    ("mellum", {"rope_parameters": None, "rope_theta": 10000.0}, "rope_theta is 10000.0"),
    ("mellum", {"rope_parameters": {"rope_type": "default"}}, "rope_parameters"),
    ("mimo_v2_flash", {"add_full_attention_sink_bias": True}, "add_full_attention_sink_bias"),
    ("dots3_note", {"per_layer_config": {"1": {"head_dim": 20}}}, "per_layer_config"),
    ("dots3_note", {"per_layer_config": {"0": {"head_dim": 20}}}, "per_layer_config"),
    ("dots3_note", {"per_layer_config": 3}, "per_layer_config is 3"),
    ("dots3_note", {"q_lora_rank": None}, "q_lora_rank"),
    (
        "dots3_note",
        {"rope_parameters": {"sliding_attention": {"rope_theta": 10.0}}},
        "a block indexed_attention",
    ),
    ("dots3_note", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling"),
    ("dots3_note", {"num_key_value_heads": 2}, "num_key_value_heads is 2"),
    ("dots3_note", {"mlp_bias": True}, "mlp_bias is True"),
    ("mimo_v2_flash", {"swa_head_dim": 8}, "swa_head_dim"),
    ("mimo_v2_flash", {"architectures": None, "model_type": "mimo_v2"}, "add_swa_attention_sink_bias"),
    ("mimo_v2_flash", {"attention_projection_layout": "packed"}, "attention_projection_layout"),
    ("ernie4_5_moe", {"moe_gate_act": "sigmoid"}, "moe_gate_act"),
    ("ernie4_5_moe", {"moe_num_experts": [8, 8]}, "moe_num_experts"),
    ("ernie4_5_moe", {"use_bias": True}, "use_bias"),
    ("dots1", {"n_group": 3}, "n_group"),
    ("dots1", {"topk_group": 1}, "num_experts_per_tok"),
    ("dots1", {"scoring_func": "softmax"}, "scoring_func"),
    ("dots1", {"sliding_window": None}, "layer_types"),
    ("dots1", {"num_experts_per_tok": None}, "num_experts_per_tok"),
    ("solar_open", {"first_k_dense_replace": 1}, "first_k_dense_replace"),
    ("solar_open", {"use_qk_norm": True}, "use_qk_norm"),
    ("exaone_moe", {"is_moe_layer": [True] * 4}, "is_moe_layer"),
    ("exaone_moe", {"is_moe_layer": [1] * 4}, "is_moe_layer"),
    ("exaone_moe", {"sliding_window": None}, "layer_types"),
    ("exaone_moe", {"layer_types": None, "sliding_window_pattern": "LGL"}, "sliding_window_pattern"),
    ("hy_v3", {"mlp_bias": True}, "mlp_bias"),
    ("hy_v3", {"num_shared_experts": 0}, "num_shared_experts"),
    ("hy_v3", {"num_experts_per_tok": 9}, "num_experts_per_tok"),
    ("hy_v3", {"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
    ("hy_v3", {"first_k_dense_replace": 2}, "first_k_dense_replace"),
    ("hy_v3", {"route_norm": False}, "route_norm"),
    ("minimax_m2", {"attn_type_list": [0, 1, 1]}, "attn_type_list"),
    ("minimax_m2", {"scoring_func": "softmax"}, "scoring_func"),
    ("minimax_m2", {"shared_intermediate_size": 32}, "shared_intermediate_size"),
    ("minimax_m2", {"use_routing_bias": False}, "use_routing_bias"),
    ("minimax_m2", {"qk_norm_type": "per_head"}, "qk_norm_type"),
    ("mistral4", {"n_group": 3}, "n_group"),
    ("mistral4", {"rope_parameters": {"rope_type": "default"}}, "rope_type"),
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


def test_mistral4_rotates_the_part_that_the_sizes_say() -> None:
    config = Reference("mistral4").record["config"]
    block = {**config["rope_parameters"], "partial_rotary_factor": 0.25}
    with pytest.raises(UnsupportedModel, match="partial_rotary_factor"):
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


@pytest.mark.parametrize(
    ("said", "choosers"),
    [
        ({}, (0, 1, 2)),
        ({"index_topk_pattern": "FSF"}, (0, 0, 2)),
        ({"index_topk_freq": 4}, (0, 1, 1)),
        ({"index_topk_freq": 2, "index_skip_topk_offset": 1}, (0, 0, 2)),
    ],
)
def test_which_layers_of_glm5_choose(said: dict[str, Any], choosers: tuple[int, ...]) -> None:
    config = {**Reference("glm_moe_dsa").record["config"], "indexer_types": None, **said}
    assert describe(config).config.choosers == choosers
