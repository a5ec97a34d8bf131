"""Dory 2: two passes of the middle as published, and three of all layers but the last, with every bias."""

from typing import Any

_COMMON: dict[str, Any] = {
    "head_dim": 16,
    "ngpt_alpha_init": 0.4,
    "num_hidden_layers": 4,
    "n_input_layers": 1,
    "n_output_layers": 1,
    "sliding_window": 9,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "dory": ("dory", _COMMON),
    "dory_biases": (
        "dory",
        {
            **_COMMON,
            "head_dim": 24,
            "n_input_layers": 0,
            "n_recurrent_loops": 3,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "initializer_range": 0.02,
            "ngpt_alpha_init": 0.6,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 700.0},
                "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0},
            },
        },
    ),
}
