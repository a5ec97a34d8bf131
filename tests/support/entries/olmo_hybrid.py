"""OLMo hybrid: with and without positions, fewer key heads than value heads, strengths up to one and two."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "olmo_hybrid": (
        "olmo_hybrid",
        {
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "rope_parameters": {"rope_type": "default", "rope_theta": None},
        },
    ),
    "olmo_hybrid_rope": (
        "olmo_hybrid",
        {
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 16,
            "linear_allow_neg_eigval": False,
            "attention_bias": True,
        },
    ),
}
