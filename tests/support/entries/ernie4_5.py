"""ERNIE 4.5: dense, with every bias; mixtures in every other layer from a first to a last one, corrected; and
for text and images."""

from typing import Any

_MIXTURE: dict[str, Any] = {
    "moe_intermediate_size": 32,
    "moe_k": 3,
    "moe_num_experts": 8,
}

_SEEING: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "moe_intermediate_size": [32, 16],
    "moe_k": 3,
    "moe_num_experts": 8,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0, "mrope_section": [3, 3, 2]},
}
_SEEN: dict[str, Any] = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "patch_size": 4,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "ernie4_5": ("ernie4_5", {"head_dim": 16, "num_hidden_layers": 3}),
    "ernie4_5_biases": (
        "ernie4_5",
        {"head_dim": 32, "num_hidden_layers": 3, "use_bias": True, "tie_word_embeddings": False},
    ),
    "ernie4_5_moe": ("ernie4_5_moe", {**_MIXTURE, "num_hidden_layers": 3}),
    "ernie4_5_moe_biases": (
        "ernie4_5_moe",
        {
            **_MIXTURE,
            "num_hidden_layers": 6,
            "use_bias": True,
            "tie_word_embeddings": False,
            "moe_num_shared_experts": 1,
            "moe_layer_start_index": 1,
            "moe_layer_end_index": 3,
            "moe_layer_interval": 2,
            "moe_norm_min": 0.5,
        },
    ),
    "ernie4_5_moe_unshared": (
        "ernie4_5_moe",
        {**_MIXTURE, "num_hidden_layers": 3, "moe_num_shared_experts": 0, "moe_layer_start_index": 0},
    ),
    "ernie4_5_vl_moe": ("ernie4_5_vl_moe", {"text_config": _SEEING, "vision_config": _SEEN}),
    "ernie4_5_vl_moe_biases": (
        "ernie4_5_vl_moe",
        {
            "text_config": {
                **_SEEING,
                "num_hidden_layers": 4,
                "use_bias": True,
                "moe_num_shared_experts": 1,
                "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
                "moe_norm_min": 0.5,
            },
            "vision_config": _SEEN,
            "tie_word_embeddings": False,
        },
    ),
}
