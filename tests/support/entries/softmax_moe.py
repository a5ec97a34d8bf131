"""Mixtures under a softmax: Qwen2-MoE, Qwen3-MoE, Mixtral, OLMoE, FlexOlmo, Phi-3.5-MoE and Granite 3 MoE."""

from typing import Any

_LONGROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 256,
    "short_factor": [1.0, 1.1, 1.3, 1.2, 1.4, 1.5, 1.1, 1.0],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 9.0, 14.0, 20.0],
    "short_mscale": 1.2,
    "long_mscale": 1.2,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_moe": (
        "qwen3_moe",
        {
            "head_dim": 32,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
        },
    ),
    "qwen3_moe_window": (
        "qwen3_moe",
        {
            "head_dim": 16,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 12,
            "decoder_sparse_step": 2,
        },
    ),
    "qwen2_moe": (
        "qwen2_moe",
        {
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 48,
            "use_sliding_window": True,
            "sliding_window": 12,
            "max_window_layers": 4,
        },
    ),
    "mixtral": ("mixtral", {"num_local_experts": 4, "sliding_window": 12, "intermediate_size": 64}),
    "olmoe": (
        "olmoe",
        {"num_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 32, "clip_qkv": 1.5},
    ),
    "olmoe_normalized": (
        "olmoe",
        {
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "intermediate_size": 32,
            "norm_topk_prob": True,
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
    ),
    "flex_olmo": (
        "flex_olmo",
        {"num_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 32, "attention_bias": True},
    ),
    "phimoe": (
        "phimoe",
        {
            "num_local_experts": 4,
            "intermediate_size": 64,
            "attention_bias": True,
            "lm_head_bias": True,
            "router_jitter_noise": 0.4,
            "rope_parameters": _LONGROPE,
        },
    ),
    "granitemoe": (
        "granitemoe",
        {
            "num_local_experts": 6,
            "num_experts_per_tok": 3,
            "intermediate_size": 32,
            "attention_bias": True,
            "embedding_multiplier": 3.0,
            "logits_scaling": 2.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
        },
    ),
    "granitemoeshared": (
        "granitemoeshared",
        {
            "num_local_experts": 6,
            "num_experts_per_tok": 3,
            "intermediate_size": 32,
            "shared_intermediate_size": 48,
            "attention_multiplier": 0.25,
            "tie_word_embeddings": True,
        },
    ),
}
