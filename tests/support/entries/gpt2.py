"""GPT-2: learned positions, transposed matrices, scores that shrink by layer."""

from typing import Any

_SIZES: dict[str, Any] = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 96}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", _SIZES),
    "gpt2_inverse_layers": (
        "gpt2",
        {**_SIZES, "n_inner": 96, "scale_attn_by_inverse_layer_idx": True, "tie_word_embeddings": False},
    ),
}
