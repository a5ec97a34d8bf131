"""EXAONE 3: Llama 3's rotation, heads of a size of their own, a tied head."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "exaone": (
        "exaone",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 1000000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "exaone_tied": ("exaone", {"head_dim": 32, "tie_word_embeddings": True}),
}
