"""OLMo 2 and 3, EXAONE 4: norms after, wide and per-head query norms, windows, two rotations, NoPE."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "olmo2": ("olmo2", {"attention_bias": True}),
    "olmo3": (
        "olmo3",
        {
            "sliding_window": 12,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn",
                    "rope_theta": 500000.0,
                    "factor": 8.0,
                    "original_max_position_embeddings": 32,
                    "attention_factor": 1.2,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
            },
        },
    ),
    "exaone4": ("exaone4", {"sliding_window": 12, "sliding_window_pattern": 3, "tie_word_embeddings": True}),
    "exaone4_full": ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 4}),
}
