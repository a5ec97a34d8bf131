"""Gemma 3n: four streams, Laurel, sparse gates, the second table, shared keys and values, ids beyond that
table.
"""

from typing import Any

_TEXT: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": [96, 96, 64, 64, 96],
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "sliding_window": 12,
    "layer_types": [
        "sliding_attention",
        "full_attention",
        "sliding_attention",
        "sliding_attention",
        "full_attention",
    ],
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 150,
    "laurel_rank": 8,
    "activation_sparsity_pattern": [0.9, 0.5, 0.0, 0.0, 0.0],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 100000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
    },
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3n": ("gemma3n_text", {**_TEXT, "altup_num_inputs": 3}),
}
