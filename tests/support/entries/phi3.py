"""Phi-3: fused matrices, a window, part of each head rotated, LongRoPE all short and all long."""

from typing import Any

_FACTORS: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.3, 1.2, 1.4, 1.5, 1.1, 1.0],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 9.0, 14.0, 20.0],
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3_window": ("phi3", {"sliding_window": 12, "rope_parameters": {"partial_rotary_factor": 0.5}}),
    "phi3_longrope_short": (
        "phi3",
        {
            "rope_parameters": {**_FACTORS, "factor": 4.0},
            "original_max_position_embeddings": 256,
            "tie_word_embeddings": True,
        },
    ),
    "phi3_longrope_long": ("phi3", {"rope_parameters": _FACTORS, "original_max_position_embeddings": 12}),
}
