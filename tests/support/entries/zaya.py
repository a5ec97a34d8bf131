"""ZAYA: both kinds of layers, three taps; biases, one layer of each head's own keys, an untied head."""

from typing import Any

_ZAYA: dict[str, Any] = {
    "intermediate_size": None,
    "head_dim": 16,
    "num_hidden_layers": 4,
    "layer_types": ["hybrid", "hybrid_sliding", "hybrid", "hybrid_sliding"],
    "sliding_window": 9,
    "moe_intermediate_size": 32,
    "num_experts": 5,
    "router_hidden_size": 24,
    "rope_parameters": {
        "hybrid": {"rope_type": "default", "rope_theta": 5000000.0, "partial_rotary_factor": 0.5},
        "hybrid_sliding": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    },
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "zaya": ("zaya", _ZAYA),
    "zaya_biases": (
        "zaya",
        {
            **_ZAYA,
            "num_hidden_layers": 2,
            "layer_types": ["hybrid", "hybrid"],
            "num_key_value_heads": 4,
            "attention_bias": True,
            "cca_time0": 3,
            "cca_time1": 4,
            "tie_word_embeddings": False,
            "lm_head_bias": True,
        },
    ),
}
