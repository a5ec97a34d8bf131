"""CWM and Ministral: windows in most layers."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "cwm": ("cwm", {"head_dim": 32, "sliding_window": 9, "num_hidden_layers": 5}),
    "ministral": (
        "ministral",
        {
            "head_dim": 16,
            "sliding_window": 12,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
        },
    ),
}
