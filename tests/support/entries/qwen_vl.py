"""Qwen-VL text towers inside their wrappers, with tiny vision towers whose tensors are dropped.

The mixture's wrapper and its text block disagree about tying the head, as transformers saves them.
"""

from typing import Any

_TEXT: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 50000.0,
        "mrope_section": [4, 2, 2],
        "mrope_interleaved": True,
    },
}
_TEXT2: dict[str, Any] = {
    **{key: value for key, value in _TEXT.items() if key != "head_dim"},
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0, "mrope_section": [4, 2, 2]},
}

_VISION3: dict[str, Any] = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "patch_size": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0],
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_vl": (
        "qwen3_vl",
        {
            "text_config": _TEXT,
            "vision_config": _VISION3,
            "tie_word_embeddings": False,
        },
    ),
    "qwen3_vl_moe": (
        "qwen3_vl_moe",
        {
            "text_config": {
                **_TEXT,
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 32,
                "tie_word_embeddings": True,
            },
            "vision_config": _VISION3,
            "tie_word_embeddings": False,
        },
    ),
    "qwen2_5_vl": (
        "qwen2_5_vl",
        {
            "text_config": _TEXT2,
            "vision_config": {
                "depth": 1,
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_heads": 2,
                "patch_size": 2,
                "out_hidden_size": 64,
                "fullatt_block_indexes": [0],
            },
            "tie_word_embeddings": True,
        },
    ),
}
