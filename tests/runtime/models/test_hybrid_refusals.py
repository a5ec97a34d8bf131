"""What a hybrid family would compute wrongly is refused by name, before a weight is read."""

from typing import Any

import pytest

from runtime.errors import UnsupportedModel
from runtime.models.registry.described import describe
from tests.support.parity import Reference

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("qwen3_5", {"attn_output_gate": False}, "attn_output_gate"),
    ("qwen3_5", {"hidden_act": "gelu"}, "hidden_act"),
    ("qwen3_5", {"linear_num_value_heads": 3}, "3 value heads"),
    ("qwen3_5", {"layer_types": ["full_attention", "sliding_attention"] * 2}, "layer_types"),
    ("qwen3_next", {"num_experts_per_tok": 99}, "num_experts_per_tok"),
    ("mamba2", {"expand": 3}, "expand x hidden_size"),
    ("mamba2", {"n_groups": 3}, "groups"),
    ("mamba2", {"time_step_limit": [0.5, 0.1]}, "time_step_limit"),
    ("mamba2", {"hidden_act": "relu"}, "hidden_act"),
    ("falcon_h1", {"ssm_multipliers": [1.0, 2.0]}, "ssm_multipliers"),
    ("falcon_h1", {"mamba_d_head": 7}, "mamba_d_head 7"),
    ("nemotron_h", {"layers_block_type": None, "layer_types": None}, "layers_block_type"),
    ("nemotron_h", {"layers_block_type": ["linear_attention", "convolution"]}, "convolution"),
    ("nemotron_h", {"n_shared_experts": 2}, "n_shared_experts"),
    ("bamba", {"layer_types": ["mamba", "sliding", "mamba"]}, "layer_types"),
    ("chameleon", {"vocabulary_map": None}, "vocabulary_map"),
    ("chameleon", {"vocabulary_map": {"IMGIMGAZ": 160}}, "ids below 160"),
    ("chameleon", {"head_dim": 8}, "hidden_size is 64, expected 4 heads of 8"),
    ("zamba", {"tie_word_embeddings": False}, "tie_word_embeddings"),
    ("zamba", {"attention_hidden_size": 64}, "attention_hidden_size"),
    ("zamba", {"n_mamba_heads": 3}, "128 mamba channels do not divide into 3 heads"),
    ("zamba", {"hidden_mamba_act": "gelu"}, "hidden_mamba_act"),
    ("zamba2", {"use_long_context": True}, "use_long_context"),
    ("zamba2", {"tie_word_embeddings": False}, "tie_word_embeddings"),
    ("recurrent_gemma", {"block_types": ["recurrent", "local"]}, "block_types"),
    ("kimi_linear", {"mla_use_nope": False}, "mla_use_nope"),
    ("kimi_linear", {"moe_router_activation_func": "softmax"}, "moe_router_activation_func"),
    ("lfm2", {"layer_types": ["conv", "gru", "conv", "conv"]}, "layer_types"),
]


@pytest.mark.parametrize(("name", "change", "words"), REFUSED, ids=lambda part: str(part)[:40])
def test_refused(name: str, change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        describe({**Reference(name).record["config"], **change})
