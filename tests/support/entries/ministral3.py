"""Ministral 3 past the length it was trained at, a window, and the multimodal wrapper around both kinds of
text.
"""

from typing import Any

_ROPE: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 8,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.3,
}
_TEXT: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
}
_VISION: dict[str, Any] = {
    "model_type": "pixtral",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_dim": 8,
    "image_size": 8,
    "patch_size": 4,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "ministral3": (
        "ministral3",
        {"head_dim": 32, "max_position_embeddings": 64, "rope_parameters": _ROPE, "sliding_window": 12},
    ),
    "mistral3": (
        "mistral3",
        {
            "text_config": {**_TEXT, "model_type": "ministral3", "rope_parameters": _ROPE},
            "vision_config": _VISION,
            "spatial_merge_size": 1,
            "tie_word_embeddings": False,
        },
    ),
    "mistral3_mistral": (
        "mistral3",
        {
            "text_config": {**_TEXT, "model_type": "mistral", "sliding_window": None},
            "vision_config": _VISION,
            "spatial_merge_size": 1,
            "tie_word_embeddings": False,
        },
    ),
}
