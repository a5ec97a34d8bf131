"""Mixtures of experts with sliding layers: AFMoE, Cohere 2 MoE, Laguna, Mellum 2, MiMo-V2-Flash."""

from typing import Any

_COHERE: dict[str, Any] = {
    "head_dim": 16,
    "num_key_value_heads": 2,
    "sliding_window": 12,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "intermediate_size": 32,
    "num_shared_experts": 2,
}
_AFMOE: dict[str, Any] = {
    "head_dim": 32,
    "sliding_window": 12,
    "num_dense_layers": 1,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_shared_experts": 2,
    "moe_intermediate_size": 32,
    "route_scale": 1.5,
}
_LAGUNA: dict[str, Any] = {
    "head_dim": 16,
    "sliding_window": 12,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "moe_routed_scaling_factor": 1.5,
}
_MELLUM: dict[str, Any] = {
    "head_dim": 32,
    "sliding_window": 12,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
}
_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 500000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
_TURNS: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "afmoe": (
        "afmoe",
        {
            **_AFMOE,
            "global_attn_every_n_layers": 3,
            "attention_bias": True,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "afmoe_plain": ("afmoe", {**_AFMOE, "mup_enabled": True, "tie_word_embeddings": True}),
    "cohere2_moe": (
        "cohere2_moe",
        {
            **_COHERE,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
            "prefix_dense_intermediate_size": 80,
            "logit_scale": 0.5,
        },
    ),
    "cohere2_moe_sigmoid": (
        "cohere2_moe",
        {
            **_COHERE,
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "mlp_layer_types": ["dense", "sparse", "sparse"],
            "prefix_dense_sliding_window_pattern": 2,
            "expert_selection_fn": "sigmoid",
            "shared_expert_combination_strategy": "sum",
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "attention_bias": True,
        },
    ),
    "laguna": (
        "laguna",
        {
            **_LAGUNA,
            "num_attention_heads_per_layer": [4, 6, 4, 2],
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn",
                    "rope_theta": 500000.0,
                    "partial_rotary_factor": 0.5,
                    "factor": 4.0,
                    "original_max_position_embeddings": 64,
                },
                "sliding_attention": {
                    "rope_type": "default",
                    "rope_theta": 10000.0,
                    "partial_rotary_factor": 1.0,
                },
            },
        },
    ),
    "laguna_by_number": (
        "laguna",
        {
            **_LAGUNA,
            "gating": "per-element",
            "attention_bias": True,
            "mlp_layer_types": ["sparse", "dense", "sparse", "dense"],
        },
    ),
    "mellum": (
        "mellum",
        {
            **_MELLUM,
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
            "attention_bias": True,
            "rope_parameters": {"full_attention": _YARN, "sliding_attention": _TURNS},
        },
    ),
    "mellum_plain": (
        "mellum",
        {
            **_MELLUM,
            "rope_parameters": {
                "full_attention": _YARN,
                "sliding_attention": {**_TURNS, "rope_theta": 500000.0},
            },
        },
    ),
    "mimo_v2_flash": (
        "mimo_v2_flash",
        {
            "num_hidden_layers": 3,
            "head_dim": 24,
            "v_head_dim": 16,
            "sliding_window": 12,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "moe_intermediate_size": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "n_group": 2,
            "topk_group": 1,
            "attention_bias": True,
        },
    ),
}
