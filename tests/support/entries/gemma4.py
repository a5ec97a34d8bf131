"""Gemma 4: head sizes by layer, the second table, shared and wide layers, values from keys, the mixture,
wrappers.
"""

from typing import Any

_KINDS = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
_BASE: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "max_position_embeddings": 256,
    "sliding_window": 12,
    "layer_types": _KINDS,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 160,
    "final_logit_softcapping": 8.0,
}
_SHARING: dict[str, Any] = {
    **_BASE,
    "num_hidden_layers": 6,
    "layer_types": [*_KINDS, "sliding_attention", "full_attention"],
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 8,
}
_VISION: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 8,
    "patch_size": 2,
    "position_embedding_size": 8,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma4_text": ("gemma4_text", _SHARING),
    "gemma4_keys_as_values": (
        "gemma4_text",
        {**_BASE, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
    ),
    "gemma4_moe": (
        "gemma4_text",
        {
            **_BASE,
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": 32,
        },
    ),
    "gemma4_wrapped": ("gemma4", {"text_config": _SHARING, "vision_config": _VISION, "audio_config": None}),
    "gemma4_unified": (
        "gemma4_unified",
        {
            "text_config": {
                key: value for key, value in _BASE.items() if not key.endswith("per_layer_input")
            },
            "vision_config": {
                "patch_size": 2,
                "mm_embed_dim": 16,
                "mm_posemb_size": 4,
                "output_proj_dims": 16,
            },
            "audio_config": {"audio_embed_dim": 16},
        },
    ),
}
