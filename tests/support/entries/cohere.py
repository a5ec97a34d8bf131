"""Cohere and Cohere 2: parallel sublayers, neighbouring pairs, norms per head, sliding and NoPE layers."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "cohere": ("cohere", {"logit_scale": 0.25, "use_qk_norm": True}),
    "cohere_biases": ("cohere", {"attention_bias": True, "tie_word_embeddings": False}),
    "cohere2": ("cohere2", {"sliding_window": 12, "sliding_window_pattern": 3}),
}
