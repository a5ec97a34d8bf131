"""Apertus: xIELU, norms on heads, the Llama 3 rotation; 1.5 with a head for some ids alone."""

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
    "apertus1p5_text": ("apertus1p5_text", {"rope_parameters": _ROPE, "num_hidden_layers": 2}),
    "apertus1p5_text_pruned": (
        "apertus1p5_text",
        {"rope_parameters": _ROPE, "num_hidden_layers": 2, "output_vocab_size": 112},
    ),
}
