"""Apertus: xIELU, norms on heads, the Llama 3 rotation."""

from typing import Any

_ROPE: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "apertus": ("apertus", {"rope_parameters": _ROPE}),
    "apertus_biases": (
        "apertus",
        {"rope_parameters": _ROPE, "attention_bias": True, "tie_word_embeddings": True},
    ),
}
