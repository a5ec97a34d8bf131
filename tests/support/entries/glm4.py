"""GLM-4, of 2024 and of 2025: four norms, part of each head rotated, biases on q, k, v."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "glm": ("glm", {"head_dim": 32}),
    "glm_plain": ("glm", {"head_dim": 16, "attention_bias": False, "tie_word_embeddings": True}),
    "glm4": ("glm4", {"head_dim": 32}),
    "glm4_tied": ("glm4", {"head_dim": 16, "attention_bias": False, "tie_word_embeddings": True}),
}
