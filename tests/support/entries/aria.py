"""Aria's text model: biases where it has any, and another activation in what always answers."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "aria_text": (
        "aria_text",
        {
            "intermediate_size": 32,
            "hidden_act": "gelu",
            "attention_bias": True,
            "mlp_bias": True,
            "moe_num_experts": 6,
            "moe_topk": 3,
            "moe_num_shared_experts": 2,
        },
    ),
}
