"""Arcee and Jais 2: an MLP without gate; YaRN, biases, LayerNorms."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "arcee": (
        "arcee",
        {
            "head_dim": 32,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "arcee_biases": (
        "arcee",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu"},
    ),
    "jais2": ("jais2", {"head_dim": 16}),
    "jais2_plain": ("jais2", {"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True}),
}
