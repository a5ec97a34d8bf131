"""Helium: neighbouring pairs, biases, heads of a size of their own."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "helium": ("helium", {"head_dim": 16}),
    "helium_biases": (
        "helium",
        {
            "num_attention_heads": 2,
            "head_dim": 32,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        },
    ),
}
