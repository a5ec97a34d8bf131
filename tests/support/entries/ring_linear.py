"""Ring-linear: lightning attention in groups of layers, with softmax attention behind each and at the end;
corrections, groups of experts, norms of heads and without, heads turned in part. And Ling 2.5, where
latent attention takes that place.
"""

from typing import Any

_SIZES: dict[str, Any] = {
    "architectures": ["BailingMoeLinearV2ForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 256,
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 5,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "first_k_dense_replace": 1,
    "layer_group_size": 2,
    "group_norm_size": 2,
    "use_qk_norm": True,
    "partial_rotary_factor": 0.5,
    "moe_router_enable_expert_bias": True,
    "routed_scaling_factor": 2.5,
    "score_function": "sigmoid",
    "n_group": 4,
    "topk_group": 2,
    "head_dim": 16,
}

_LING: dict[str, Any] = {
    **_SIZES,
    "architectures": ["BailingMoeV2_5ForCausalLM"],
    "num_key_value_heads": 4,
    "num_hidden_layers": 5,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "rope_interleave": True,
    "tie_word_embeddings": False,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "ring_linear": ("bailing_moe_linear", _SIZES),
    "ring_linear_biases": (
        "bailing_moe_linear",
        {
            **_SIZES,
            "num_attention_heads": 6,
            "hidden_size": 96,
            "num_hidden_layers": 4,
            "layer_group_size": 4,
            "group_norm_size": 6,
            "use_qkv_bias": True,
            "use_qk_norm": False,
            "norm_topk_prob": False,
            "n_group": 1,
            "topk_group": 1,
            "num_experts_per_tok": 3,
            "num_shared_experts": 2,
            "moe_shared_expert_intermediate_size": 24,
            "tie_word_embeddings": True,
            "partial_rotary_factor": 1.0,
        },
    ),
    "ling2_5": ("bailing_hybrid", _LING),
    "ling2_5_ranked": (
        "bailing_hybrid",
        {**_LING, "num_hidden_layers": 4, "layer_group_size": 3, "q_lora_rank": 24, "use_qkv_bias": True},
    ),
}
