"""Step-3.5-Flash: sliding layers with more heads, rotations by layer, clipped experts and MLPs; all plain."""

from typing import Any

_SIZES: dict[str, Any] = {
    "architectures": ["Step3p5ForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_attention_groups": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "rope_theta": [50000.0, 10000.0, 10000.0, 50000.0],
    "max_position_embeddings": 256,
    "sliding_window": 9,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "yarn_only_types": ["full_attention"],
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 2.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 32.0,
        "original_max_position_embeddings": 64,
    },
    "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5],
    "attention_other_setting": {
        "attention_type": "sliding_attention",
        "num_attention_heads": 6,
        "num_attention_groups": 2,
        "head_dim": 16,
    },
    "use_head_wise_attn_gate": True,
    "moe_num_experts": 8,
    "moe_top_k": 3,
    "moe_intermediate_size": 32,
    "share_expert_dim": 24,
    "moe_layers_enum": "1,2,3",
    "moe_router_scaling_factor": 1.5,
    "norm_expert_weight": True,
    "swiglu_limits": [0.0, 0.0, 0.25, 0.0],
    "swiglu_limits_shared": [0.5, 0.0, 0.0, 0.4],
    "tie_word_embeddings": False,
}

_SEEN: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "step3p5": ("step3p5", _SIZES),
    "step3p5_plain": (
        "step3p5",
        {
            **_SIZES,
            "num_hidden_layers": 2,
            "rope_theta": 10000.0,
            "rope_scaling": None,
            "yarn_only_types": None,
            "partial_rotary_factors": None,
            "layer_types": ["sliding_attention", "full_attention"],
            "attention_other_setting": None,
            "moe_layers_enum": "1",
            "swiglu_limits": None,
            "swiglu_limits_shared": None,
        },
    ),
    "step3p7": (
        "step3p7",
        {
            "text_config": {
                **{name: value for name, value in _SIZES.items() if name != "architectures"},
                "attention_bias": True,
            },
            "vision_config": _SEEN,
            "tie_word_embeddings": False,
        },
    ),
}
