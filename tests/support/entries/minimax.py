"""MiniMax: lightning and softmax attention in turn, factors on both sides of sums, a window, heads turned in
part, a tied head.
"""

from typing import Any

_MIXTURE: dict[str, Any] = {"intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "minimax": (
        "minimax",
        {
            **_MIXTURE,
            "layer_types": [*["linear_attention"] * 2, "full_attention", "linear_attention"],
            "block_size": 16,
            "full_attn_alpha_factor": 2.5,
            "full_attn_beta_factor": 0.75,
            "linear_attn_alpha_factor": 3.5,
            "linear_attn_beta_factor": 1.25,
            "mlp_alpha_factor": 1.5,
            "mlp_beta_factor": 0.5,
        },
    ),
    "minimax_window": (
        "minimax",
        {
            **_MIXTURE,
            "num_hidden_layers": 3,
            "head_dim": 32,
            "rotary_dim": 16,
            "sliding_window": 9,
            "hidden_act": "gelu",
            "tie_word_embeddings": True,
        },
    ),
}
