"""Doge: keys' biases in full layers and in windows, biases of matrices, a head of its own and a tied one."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "doge": ("doge", {"keep_window_size": 128}),
    "doge_biases": (
        "doge",
        {
            "attention_bias": True,
            "mlp_bias": True,
            "sliding_window": 9,
            "tie_word_embeddings": True,
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
        },
    ),
}
