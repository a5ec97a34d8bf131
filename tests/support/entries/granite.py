"""Granite: all four multipliers; windows and sinks, bases by layer, experts beside a shared one."""

from typing import Any

_MULTIPLIERS = {
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.4,
    "embedding_multiplier": 3.0,
    "logits_scaling": 2.5,
}

_SPARSE = {"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 32}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "granite": ("granite", {**_MULTIPLIERS, "tie_word_embeddings": True}),
    "granite_biases": ("granite", {**_MULTIPLIERS, "attention_bias": True, "mlp_bias": True}),
    "granite_swa": (
        "granite_swa",
        {
            **_MULTIPLIERS,
            "sliding_window": 9,
            "num_hidden_layers": 5,
            "layer_rope_theta": [0, 500.0, 10000.0, 500, 0.0],
        },
    ),
    "granite_swa_biases": (
        "granite_swa",
        {
            **_MULTIPLIERS,
            "sliding_window": 12,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "granitemoe_swa": (
        "granitemoe_swa",
        {
            **_MULTIPLIERS,
            **_SPARSE,
            "sliding_window": 9,
            "shared_intermediate_size": 48,
            "layer_rope_theta": [0, 500.0, 10000.0, 500.0],
        },
    ),
    "granitemoe_swa_unshared": (
        "granitemoe_swa",
        {
            **_MULTIPLIERS,
            **_SPARSE,
            "sliding_window": 12,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
    ),
}
