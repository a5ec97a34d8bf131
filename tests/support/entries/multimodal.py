"""Text models of other families inside multimodal wrappers, with tiny towers whose tensors are dropped.

One for each way in which such a text model differs from the family's own; `test_multimodal` has the other
wrappers.
"""

from typing import Any

_TEXT: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
_SEEN: dict[str, Any] = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "patch_size": 4,
    "image_size": 8,
    "out_hidden_size": 64,
}
_AXES: dict[str, Any] = {
    "rope_type": "default",
    "rope_theta": 50000.0,
    "mrope_section": [2, 1, 1],
    "partial_rotary_factor": 0.5,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llava": (
        "llava",
        {
            "text_config": {**_TEXT, "model_type": "mistral", "head_dim": 24, "sliding_window": 12},
            "vision_config": {
                "model_type": "clip_vision_model",
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 8,
                "patch_size": 4,
                "projection_dim": 16,
            },
        },
    ),
    "glm4v": (
        "glm4v",
        {
            "text_config": {**_TEXT, "rope_parameters": _AXES},
            "vision_config": _SEEN,
            "tie_word_embeddings": False,
        },
    ),
    "glm_ocr": (
        "glm_ocr",
        {
            "text_config": {
                **_TEXT,
                "head_dim": 24,
                "rope_parameters": {**_AXES, "mrope_section": [3, 2, 1]},
            },
            "vision_config": _SEEN,
            "tie_word_embeddings": False,
        },
    ),
    "glm4v_moe": (
        "glm4v_moe",
        {
            "text_config": {
                **_TEXT,
                "head_dim": 16,
                "rope_parameters": _AXES,
                "first_k_dense_replace": 1,
                "n_routed_experts": 8,
                "num_experts_per_tok": 3,
                "moe_intermediate_size": 32,
                "routed_scaling_factor": 1.5,
            },
            "vision_config": _SEEN,
            "tie_word_embeddings": False,
        },
    ),
}
