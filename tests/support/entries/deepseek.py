"""Latent attention: DeepSeek V2, V3, V3.2, GLM-4.7 Flash, GLM-5, A.X K1, Youtu, MiniCPM3; with and without
query rank, groups, YaRN, LongRoPE, indexer.

The latent sizes are such that 48 tokens at once are computed with keys and values made, and few without.
"""

from typing import Any

_OF_HEADS: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "num_hidden_layers": 3,
}
_LATENT: dict[str, Any] = {
    **_OF_HEADS,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
}
_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "original_max_position_embeddings": 64,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "axk1": ("axk1", {**_LATENT, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1}),
    "axk1_listed": (
        "axk1",
        {
            **_LATENT,
            "mlp_layer_types": ["sparse", "dense", "sparse"],
            "n_group": 1,
            "topk_group": 1,
            "n_shared_experts": 2,
            "norm_topk_prob": False,
            "rope_interleave": False,
            "attention_bias": True,
            "rope_parameters": _YARN,
        },
    ),
    "axk2": (
        "axk2",
        {
            **_LATENT,
            "n_group": 4,
            "topk_group": 2,
            "index_n_heads": 16,
            "index_head_dim": 16,
            "index_topk": 24,
            "gated_norm_rank": 8,
        },
    ),
    "axk2_listed": (
        "axk2",
        {
            **_LATENT,
            "mlp_layer_types": ["sparse", "dense", "sparse"],
            "n_shared_experts": 2,
            "norm_topk_prob": False,
            "attention_bias": True,
            "index_n_heads": 8,
            "index_head_dim": 24,
            "index_topk": 30,
            "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.8},
        },
    ),
    "deepseek_v2": (
        "deepseek_v2",
        {
            **_LATENT,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.5,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "rope_parameters": {**_YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
        },
    ),
    "deepseek_v2_lite": (
        "deepseek_v2",
        {
            **_LATENT,
            "q_lora_rank": None,
            "n_shared_experts": 1,
            "topk_method": "greedy",
            "attention_bias": True,
        },
    ),
    "deepseek_v3": (
        "deepseek_v3",
        {
            **_LATENT,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "n_group": 4,
            "topk_group": 2,
            "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.8},
        },
    ),
    "deepseek_v3_halves": (
        "deepseek_v3",
        {
            **_LATENT,
            "q_lora_rank": None,
            "n_shared_experts": 1,
            "first_k_dense_replace": 2,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": False,
            "rope_interleave": False,
            "attention_bias": True,
        },
    ),
    "deepseek_v32": (
        "deepseek_v32",
        {
            **_LATENT,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "mlp_layer_types": None,
            "n_group": 2,
            "topk_group": 1,
            "index_n_heads": 16,
            "index_head_dim": 16,
            "index_topk": 12,
        },
    ),
    "glm_moe_dsa": (
        "glm_moe_dsa",
        {
            **_LATENT,
            "first_k_dense_replace": 1,
            "index_n_heads": 16,
            "index_head_dim": 16,
            "index_topk": 16,
        },
    ),
    "glm_moe_dsa_shared": (
        "glm_moe_dsa",
        {
            **_LATENT,
            "num_hidden_layers": 4,
            "first_k_dense_replace": 2,
            "n_group": 2,
            "topk_group": 1,
            "index_n_heads": 8,
            "index_head_dim": 24,
            "index_topk": 24,
            "indexer_types": ["full", "shared", "full", "shared"],
            "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.8},
        },
    ),
    "glm4_moe_lite": (
        "glm4_moe_lite",
        {**_LATENT, "n_shared_experts": 1, "mlp_layer_types": ["dense", "sparse", "sparse"]},
    ),
    "sarvam_mla": (
        "sarvam_mla",
        {
            **_LATENT,
            "q_lora_rank": None,
            "n_shared_experts": 2,
            "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.8},
        },
    ),
    "youtu": (
        "youtu",
        {**_OF_HEADS, "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.8}},
    ),
    "youtu_halves": (
        "youtu",
        {
            **_OF_HEADS,
            "q_lora_rank": None,
            "rope_interleave": False,
            "attention_bias": True,
            "tie_word_embeddings": False,
        },
    ),
    "minicpm3": (
        "minicpm3",
        {
            **_OF_HEADS,
            "dim_model_base": 16,
            "scale_emb": 3,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0, 1.1, 1.3, 1.2],
                "long_factor": [1.0, 1.5, 3.0, 9.0],
                "original_max_position_embeddings": 12,
            },
        },
    ),
    "minicpm3_biases": (
        "minicpm3",
        {
            **_OF_HEADS,
            "q_lora_rank": None,
            "v_head_dim": None,
            "scale_depth": None,
            "dim_model_base": None,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": False,
        },
    ),
}
