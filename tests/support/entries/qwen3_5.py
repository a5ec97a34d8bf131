"""Qwen3-Next, Qwen3.5 and its MoE: delta nets and gated attention, dense, sparse and mixed feed-forward."""

from typing import Any

_DELTA: dict[str, Any] = {
    "head_dim": 32,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_5": ("qwen3_5_text", {**_DELTA, "attention_bias": True}),
    "qwen3_5_tied": (
        "qwen3_5_text",
        {
            **_DELTA,
            "tie_word_embeddings": True,
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "linear_attention", "linear_attention"],
        },
    ),
    "qwen3_5_moe": ("qwen3_5_moe_text", {**_DELTA, **_EXPERTS}),
    "qwen3_next": ("qwen3_next", {**_DELTA, **_EXPERTS, "norm_topk_prob": False}),
    "qwen3_next_mixed": (
        "qwen3_next",
        {**_DELTA, **_EXPERTS, "mlp_only_layers": [1], "decoder_sparse_step": 2, "head_dim": 16},
    ),
}
