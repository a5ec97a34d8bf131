"""OLMo 1: norms without weights, bounds of queries, keys and values."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "olmo": ("olmo", {"tie_word_embeddings": True}),
    "olmo_clipped": ("olmo", {"clip_qkv": 1.5, "attention_bias": True}),
}
