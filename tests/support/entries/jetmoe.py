"""JetMoE: two experts per token as published, and three, with a head of its own."""

from typing import Any

_COMMON: dict[str, Any] = {
    "num_hidden_layers": 3,
    "intermediate_size": 48,
    "num_local_experts": 6,
    "num_key_value_heads": 2,
    "kv_channels": 16,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "jetmoe": ("jetmoe", _COMMON),
    "jetmoe_three": (
        "jetmoe",
        {
            **_COMMON,
            "num_experts_per_tok": 3,
            "num_key_value_heads": 4,
            "kv_channels": 24,
            "tie_word_embeddings": False,
            "rms_norm_eps": 1e-3,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0},
        },
    ),
}
