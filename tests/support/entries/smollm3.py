"""SmolLM3: layers without positions, with and without windows."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "smollm3": ("smollm3", {"no_rope_layer_interval": 2}),
    "smollm3_window": (
        "smollm3",
        {
            "use_sliding_window": True,
            "sliding_window": 12,
            "no_rope_layers": [1, 0, 1, 1],
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": False,
        },
    ),
}
