"""Molmo 2: on Qwen 3, and on OLMo with a rotation that is scaled in some layers."""

from typing import Any

_TEXT: dict[str, Any] = {
    "vocab_size": 144,
    "additional_vocab_size": 16,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": 256,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
}
_AROUND: dict[str, Any] = {
    "vision_config": {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "image_size": [8, 8],
        "patch_size": 4,
    },
    "adapter_config": {
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 16,
        "text_hidden_size": 64,
        "vision_feature_layer": [0],
    },
    "image_patch_id": 146,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "molmo2": ("molmo2", {"text_config": _TEXT, **_AROUND}),
    "molmo2_olmo": (
        "molmo2",
        {
            "text_config": {
                **_TEXT,
                "attention_bias": True,
                "qk_norm_type": "olmo",
                "norm_after": True,
                "rope_parameters": {
                    "rope_type": "yarn",
                    "rope_theta": 50000.0,
                    "factor": 4.0,
                    "original_max_position_embeddings": 16,
                },
                "rope_scaling_layers": [0, 2],
            },
            **_AROUND,
        },
    ),
}
