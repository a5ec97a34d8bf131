"""Phi-1 to Phi-2: as published, and with normed heads, fewer key heads and another share of rotation."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "phi": ("phi", {"num_key_value_heads": None, "num_hidden_layers": 3}),
    "phi_norms": (
        "phi",
        {
            "num_hidden_layers": 3,
            "qk_layernorm": True,
            "hidden_size": 80,
            "partial_rotary_factor": 0.4,
            "hidden_act": "gelu",
        },
    ),
}
