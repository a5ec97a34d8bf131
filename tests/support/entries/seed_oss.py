"""Seed-OSS: both switches for biases."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "seed_oss": ("seed_oss", {"head_dim": 32}),
    "seed_oss_biases": (
        "seed_oss",
        {
            "head_dim": 16,
            "attention_bias": True,
            "attention_out_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
        },
    ),
}
