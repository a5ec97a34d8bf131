"""DeepSeek V4: windows alone, vectors of few tokens that are ranked, and of many that are not; tables of
experts, and chosen ones.
"""

from typing import Any

_SIZES: dict[str, Any] = {
    "num_key_value_heads": 1,
    "head_dim": 24,
    "q_lora_rank": 32,
    "partial_rotary_factor": 1 / 3,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "o_lora_rank": 12,
    "index_n_heads": 8,
    "index_head_dim": 16,
    "num_hidden_layers": 3,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "deepseek_v4": (
        "deepseek_v4",
        {
            **_SIZES,
            "layer_types": [
                "sliding_attention",
                "compressed_sparse_attention",
                "heavily_compressed_attention",
            ],
            "mlp_layer_types": ["hash_moe", "moe", "moe"],
            "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 7},
            "sliding_window": 6,
            "o_groups": 2,
            "index_topk": 5,
            "rope_parameters": {
                "main": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1 / 3},
                "compress": {
                    "rope_type": "yarn",
                    "rope_theta": 160000.0,
                    "partial_rotary_factor": 1 / 3,
                    "factor": 4.0,
                    "beta_fast": 32,
                    "beta_slow": 1,
                    "original_max_position_embeddings": 64,
                    "attention_factor": 1.0,
                },
            },
        },
    ),
    "deepseek_v4_plain": (
        "deepseek_v4",
        {
            **_SIZES,
            "num_hidden_layers": 4,
            "compress_rates": {"compressed_sparse_attention": 3, "heavily_compressed_attention": 16},
            "mlp_layer_types": ["moe", "hash_moe", "moe", "moe"],
            "sliding_window": 9,
            "o_groups": 4,
            "index_topk": 12,
            "hc_mult": 2,
            "hc_sinkhorn_iters": 3,
            "hc_eps": 1e-3,
            "swiglu_limit": 0.5,
            "scoring_func": "sigmoid",
            "routed_scaling_factor": 2.0,
            "tie_word_embeddings": True,
        },
    ),
}
