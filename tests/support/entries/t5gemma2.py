"""T5Gemma 2: a window that is even, rotations of both kinds, a scalar that is not the head size, the token
that ends an image in prompt and answer, and a tower that is left out.
"""

from typing import Any

_STACK: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "query_pre_attn_scalar": 12,
    "max_position_embeddings": 256,
}
_ROPES = {
    "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
}
_TOWER: dict[str, Any] = {
    "model_type": "siglip_vision_model",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "t5gemma2": (
        "t5gemma2",
        {
            "encoder": {
                "text_config": {
                    **_STACK,
                    "num_hidden_layers": 2,
                    "sliding_window": 6,
                    "layer_types": ["sliding_attention", "full_attention"],
                },
                "vision_config": _TOWER,
                "mm_tokens_per_image": 4,
                "eoi_token_index": 151,
            },
            "decoder": {
                **_STACK,
                "num_hidden_layers": 2,
                "sliding_window": 12,
                "sliding_window_pattern": 2,
                "final_logit_softcapping": 8.0,
                "rope_parameters": _ROPES,
            },
        },
    ),
}
