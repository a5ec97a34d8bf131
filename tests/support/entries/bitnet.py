"""BitNet without its rounding (see tests/runtime/models/test_bitnet.py): biases, tied, another activation."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bitnet": ("bitnet", {}),
    "bitnet_biases": (
        "bitnet",
        {
            "attention_bias": True,
            "tie_word_embeddings": True,
            "hidden_act": "silu",
            "rope_parameters": {"rope_type": "linear", "rope_theta": 500000.0, "factor": 4.0},
        },
    ),
}
