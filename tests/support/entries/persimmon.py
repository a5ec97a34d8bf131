"""Persimmon: with norms of heads and without."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "persimmon": ("persimmon", {"rope_parameters": {"rope_type": "default", "rope_theta": 25000.0}}),
    "persimmon_plain": (
        "persimmon",
        {
            "qk_layernorm": False,
            "tie_word_embeddings": True,
            "hidden_act": "gelu",
            "rope_parameters": {
                "rope_type": "linear",
                "rope_theta": 10000.0,
                "factor": 3.0,
                "partial_rotary_factor": 0.25,
            },
        },
    ),
}
