"""GLM-4: four norms, part of each head rotated, biases on q, k, v."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "glm4": ("glm4", {"head_dim": 32}),
    "glm4_tied": ("glm4", {"head_dim": 16, "attention_bias": False, "tie_word_embeddings": True}),
}
