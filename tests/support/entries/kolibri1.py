"""Kolibri 1: sliding layers that turn and whole ones that do not; gates with and without a sum of one."""

from typing import Any

_SIZES: dict[str, Any] = {
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "kolibri1": (
        "kolibri1",
        {**_SIZES, "num_hidden_layers": 5, "sliding_window": 8, "norm_topk_prob": True},
    ),
    "kolibri1_listed": (
        "kolibri1",
        {
            **_SIZES,
            "num_hidden_layers": 2,
            "sliding_window": 13,
            "layer_types": ["full_attention", "sliding_attention"],
            "norm_topk_prob": False,
            "tie_word_embeddings": True,
        },
    ),
}
