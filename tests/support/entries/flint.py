"""Flint: sliding layers that turn, whole ones that do not, sinks, mixtures behind dense layers and before."""

from typing import Any

_SIZES: dict[str, Any] = {
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
    "sliding_window": 8,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "flint": ("flint", {**_SIZES, "num_hidden_layers": 5}),
    "flint_listed": (
        "flint",
        {
            **_SIZES,
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "mlp_only_layers": [1],
            "norm_topk_prob": False,
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
    ),
}
