"""Lara Mini: delta nets, layers that slide and turn, layers that do neither, a mixture in each."""

from typing import Any

_SIZES: dict[str, Any] = {
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "sliding_window": 9,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "lara_mini": ("lara_mini", {**_SIZES, "num_hidden_layers": 5}),
    "lara_mini_biases": (
        "lara_mini",
        {
            **_SIZES,
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "linear_attention", "sliding_attention"],
            "linear_conv_kernel_dim": 3,
            "norm_topk_prob": False,
            "attention_bias": True,
            "tie_word_embeddings": False,
        },
    ),
}
