"""RecurrentGemma: windows passed several times, a recurrent width of its own."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "recurrent_gemma": ("recurrent_gemma", {"attention_window_size": 12, "num_hidden_layers": 3}),
    "recurrent_gemma_wide": (
        "recurrent_gemma",
        {
            "attention_window_size": 12,
            "num_hidden_layers": 4,
            "block_types": ["attention", "recurrent"],
            "lru_width": 96,
            "attention_bias": True,
            "num_key_value_heads": 1,
        },
    ),
}
