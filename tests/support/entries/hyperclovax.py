"""HyperCLOVA X: norms behind sublayers, multipliers."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "hyperclovax": (
        "hyperclovax",
        {
            "attention_multiplier": 0.2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.6,
            "logits_scaling": 0.4,
        },
    ),
    "hyperclovax_biases": (
        "hyperclovax",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
}
