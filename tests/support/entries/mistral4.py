"""Mistral 4 past the length it was trained at, with and without groups and query rank, and in its wrapper."""

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
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
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
    "mistral4": (
        "mistral4",
        {
            **_LATENT,
            "first_k_dense_replace": 1,
            "n_group": 4,
            "topk_group": 2,
            "n_shared_experts": 2,
            "routed_scaling_factor": 1.5,
            "rope_parameters": _ROPE,
        },
    ),
    "mistral4_halves": (
        "mistral4",
        {
            **_LATENT,
            "q_lora_rank": None,
            "norm_topk_prob": False,
            "rope_interleave": False,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": {**_ROPE, "mscale_all_dim": 0.8},
        },
    ),
    "mistral4_wrapped": (
        "mistral3",
        {
            "text_config": {
                **_LATENT,
                "model_type": "mistral4",
                "vocab_size": 160,
                "hidden_size": 64,
                "intermediate_size": 96,
                "num_attention_heads": 4,
                "rope_parameters": _ROPE,
            },
            "vision_config": _VISION,
            "spatial_merge_size": 1,
            "tie_word_embeddings": False,
        },
    ),
}
