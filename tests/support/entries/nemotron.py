"""Nemotron: LayerNorm1P, squared ReLU, partial rotation."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "nemotron": ("nemotron", {"head_dim": 32}),
    "nemotron_biases": (
        "nemotron",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
}
