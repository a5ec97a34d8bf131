"""Granite: all four multipliers."""

from typing import Any

_MULTIPLIERS = {
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.4,
    "embedding_multiplier": 3.0,
    "logits_scaling": 2.5,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "granite": ("granite", {**_MULTIPLIERS, "tie_word_embeddings": True}),
    "granite_biases": ("granite", {**_MULTIPLIERS, "attention_bias": True, "mlp_bias": True}),
}
