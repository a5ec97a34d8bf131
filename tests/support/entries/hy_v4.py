"""Hunyuan V4: layers with indexers and without, dense ones and mixtures, one of whose clips bites; the
multimodal one.
"""

from typing import Any

_SIZES: dict[str, Any] = {
    "kv_lora_rank": 24,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "index_n_heads": 16,
    "index_head_dim": 16,
    "index_topk": 10,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "hy_v4": ("hy_v4", {**_SIZES, "num_hidden_layers": 3, "swiglu_limit": 0.25}),
    "hy_v4_listed": (
        "hy_v4",
        {
            **_SIZES,
            "num_hidden_layers": 2,
            "indexer_types": ["full", "full"],
            "mlp_layer_types": ["sparse", "dense"],
            "attention_bias": True,
            "n_group": 4,
            "topk_group": 2,
            "n_shared_experts": 2,
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.5,
            "hc_mult": 3,
            "hc_magnitude": 1.5,
            "hc_eps": 1e-3,
            "rms_norm_eps": 1e-4,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "mscale": 1.0,
                "mscale_all_dim": 0.8,
                "original_max_position_embeddings": 64,
            },
            "tie_word_embeddings": True,
        },
    ),
    "hy_v4_wrapped": (
        "hy_v4_vl",
        {
            "text_config": {
                **_SIZES,
                "index_topk": 24,
                "vocab_size": 160,
                "hidden_size": 64,
                "intermediate_size": 96,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "max_position_embeddings": 256,
                "pad_token_id": 0,
                "bos_token_id": 1,
                "eos_token_id": 2,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 10000000.0,
                    "mrope_section": [2, 1, 1],
                },
            },
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "out_hidden_size": 64,
                "max_image_size": 32,
            },
        },
    ),
}
