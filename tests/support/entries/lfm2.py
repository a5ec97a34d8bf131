"""LFM2 and LFM2-MoE: convolutions with and without biases, adjusted widths, routed layers."""

from typing import Any

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
}
