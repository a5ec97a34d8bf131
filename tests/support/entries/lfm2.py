"""LFM2, LFM2-MoE and LFM3: convolutions with and without biases, adjusted widths, routed layers, gated heads
beside windows, and layers with neither gates nor norms behind.
"""

from typing import Any

from tests.support.entries import SMALL

_LFM3: dict[str, Any] = {
    "num_hidden_layers": 5,
    "layer_types": ["conv", "conv", "full_attention", "conv", "sliding_attention"],
    "head_dim": 32,
    "sliding_window": 9,
    "conv_L_cache": 5,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "lfm2": (
        "lfm2",
        {"layer_types": ["conv", "full_attention", "conv", "full_attention"], "block_multiple_of": 32},
    ),
    "lfm2_biases": (
        "lfm2",
        {"full_attn_idxs": [2], "conv_bias": True, "conv_L_cache": 4, "block_auto_adjust_ff_dim": False},
    ),
    "lfm2_moe": (
        "lfm2_moe",
        {
            "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            "num_dense_layers": 1,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "routed_scaling_factor": 1.5,
        },
    ),
    "lfm2_moe_plain": (
        "lfm2_moe",
        {
            "num_hidden_layers": 2,
            "layer_types": ["conv", "full_attention"],
            "num_dense_layers": 0,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "use_expert_bias": False,
            "norm_topk_prob": False,
            "tie_word_embeddings": False,
        },
    ),
    "lfm3": ("lfm3", _LFM3),
    "lfm3_vl": (
        "lfm3_vl",
        {
            "text_config": {
                **SMALL,
                **_LFM3,
                "model_type": "lfm3",
                "layer_types": ["full_attention", *["conv"] * 4],
            },
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 32,
                "patch_size": 2,
                "num_hidden_layers": 3,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
            },
            "projector_hidden_size": 32,
            "tie_word_embeddings": False,
        },
    ),
    "lfm3_plain": (
        "lfm3",
        {
            "layer_types": ["conv", "sliding_attention", "full_attention", "sliding_attention"],
            "head_dim": 16,
            "sliding_window": 12,
            "conv_bias": True,
            "attention_bias": True,
            "use_attention_gate": False,
            "use_sandwich_norm": False,
            "tie_word_embeddings": False,
        },
    ),
}
