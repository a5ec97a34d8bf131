"""Qwen4, experimental: two tables of n-grams, an indexer that chooses blocks, and one that need not."""

from typing import Any

_SIZES: dict[str, Any] = {
    "head_dim": 32,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
    "hc_count": 3,
    "hc_lowrank": 24,
    "indexer_n_heads": 12,  # so many that hardly a block answers none of them, and none are equally good
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 12,
    "indexer_compress_ratio": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen4_exp": (
        "qwen4_exp_text",
        {
            **_SIZES,
            "attention_bias": True,
            "eos_token_id": [131, 2],  # in the prompt of references
            "ple_layer_ids": [1, 3],
            "ple_embed_dim": 32,
            "heads_per_ngram": 4,
            "ngram_vocab_size_base": 40,
            "make_ngram_vocab_size_divisible_by": 16,
            "split_ngram_parts": 4,
        },
    ),
    "qwen4_exp_tied": (
        "qwen4_exp_text",
        {
            **_SIZES,
            "tie_word_embeddings": True,
            "output_gate_type": "sigmoid",
            "linear_key_head_dim": 32,
            "num_hidden_layers": 3,
            "layer_types": ["indexed_attention", "linear_attention", "indexed_attention"],
            "indexer_budget": 10,
            "indexer_compress_ratio": 5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
        },
    ),
}
