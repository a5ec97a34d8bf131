"""Gemma 1, 2 and 3, VaultGemma: softcaps, alternating windows, two rotations, a scalar that is not the head
size, the wrapper.
"""

from typing import Any

_TEXT3: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "query_pre_attn_scalar": 24,
    "sliding_window": 12,
    "max_position_embeddings": 256,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 100000.0, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
    },
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma": ("gemma", {"head_dim": 32, "hidden_act": "gelu", "attention_bias": True}),
    "gemma2": (
        "gemma2",
        {
            "head_dim": 32,
            "sliding_window": 12,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
        },
    ),
    "vaultgemma": (
        "vaultgemma",
        {
            "head_dim": 32,
            "sliding_window": 12,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
            "attention_bias": True,
        },
    ),
    "gemma3_text": ("gemma3_text", _TEXT3),
    "gemma3_wrapped": (
        "gemma3",
        {
            "text_config": _TEXT3,
            "mm_tokens_per_image": 4,
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 8,
                "patch_size": 4,
            },
        },
    ),
}
