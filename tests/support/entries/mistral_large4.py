"""Mistral Large 4 in its wrapper: layers with and without positions, that read earlier latents, and that look
at what an earlier one has picked.
"""

from typing import Any

from tests.support.entries.mistral4 import _VISION

_TEXT: dict[str, Any] = {
    "model_type": "mistral_large4_text",
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "max_position_embeddings": 256,
    "index_n_heads": 8,
    "index_head_dim": 16,
    "index_topk": 24,
}
_WRAPPER: dict[str, Any] = {"vision_config": _VISION, "spatial_merge_size": 1, "tie_word_embeddings": False}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral_large4": (
        "mistral_large4",
        {
            "text_config": {
                **_TEXT,
                "num_hidden_layers": 6,
                "no_rope_layers": [1, 0, 1, 1, 0, 1],
                "kv_source_layers": [0, 1, 0, 0, 1, 5],
                "indexer_types": ["full", "full", "shared", "full", "shared", "full"],
                "n_group": 4,
                "topk_group": 2,
                "n_shared_experts": 2,
                "routed_scaling_factor": 1.5,
            },
            **_WRAPPER,
        },
    ),
    "mistral_large4_plain": (
        "mistral_large4",
        {
            "text_config": {
                **_TEXT,
                "num_hidden_layers": 4,
                "first_k_dense_replace": 2,
                "attention_bias": True,
                "final_logit_softcapping": 4.0,
                "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
            },
            **_WRAPPER,
        },
    ),
}
