"""StarCoder2: LayerNorms, biases, a window."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "starcoder2": ("starcoder2", {"sliding_window": 12}),
    "starcoder2_plain": ("starcoder2", {"use_bias": False, "tie_word_embeddings": False}),
}
