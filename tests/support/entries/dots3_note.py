"""Dots 3 Note: layers under an indexer, without one, and in a window, whose heads have sizes of their own."""

from typing import Any

_DOTS: dict[str, Any] = {
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 24,
    "q_lora_rank": 32,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "sliding_window": 9,
    "swa_num_attention_heads": 2,
    "swa_num_key_value_heads": 2,
    "swa_q_lora_rank": 40,
    "swa_kv_lora_rank": 16,
    "swa_head_dim": 20,
    "swa_qk_nope_head_dim": 8,
    "swa_v_head_dim": 16,
    "moe_intermediate_size": 32,
    "shared_experts_intermediate_size": 48,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "index_n_heads": 8,
    "index_head_dim": 16,
    "index_topk": 24,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "dots3_note": (
        "dots3_note_text",
        {
            **_DOTS,
            "layer_types": [
                "indexed_attention",
                "sliding_attention",
                "indexed_attention",
                "sliding_attention",
            ],
            "mlp_layer_types": ["dense", "sparse", "dense", "sparse"],
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 1.5,
            "rope_theta": 500.0,
            "swa_rope_theta": 100.0,
        },
    ),
    "dots3_note_full": (
        "dots3_note_text",
        {
            **_DOTS,
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "use_dsa": False,
            "n_shared_experts": 2,
            "mlp_layer_types": ["sparse", "dense", "sparse"],
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
    ),
}
