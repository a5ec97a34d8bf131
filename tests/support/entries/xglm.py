"""XGLM: scaled embeddings and plain ones, a position that has no wave."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "xglm": ("xglm", {"ffn_dim": 96, "num_hidden_layers": 3, "pad_token_id": 1}),
    "xglm_plain": (
        "xglm",
        {
            "ffn_dim": 80,
            "num_hidden_layers": 3,
            "scale_embedding": False,
            "activation_function": "relu",
            "tie_word_embeddings": False,
            "pad_token_id": 9,
        },
    ),
}
