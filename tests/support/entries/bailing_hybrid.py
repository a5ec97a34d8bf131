"""Ling 3: KDA with a floor under decays and without, gated latent attention with and without a query rank."""

from typing import Any

_SHAPE: dict[str, Any] = {
    "num_key_value_heads": 4,
    "num_hidden_layers": 4,
    "layer_group_size": 2,
    "head_dim": 16,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 4,
    "topk_group": 2,
    "num_mtp_layers": 0,
    "rope_theta": 10000.0,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bailing_hybrid": ("bailing_hybrid", _SHAPE),
    "bailing_hybrid_ranked": (
        "bailing_hybrid",
        {
            **_SHAPE,
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "linear_attention", "linear_attention"],
            "mlp_layer_types": ["sparse", "dense", "sparse"],
            "q_lora_rank": 24,
            "n_shared_experts": 2,
            "norm_topk_prob": False,
            "attention_bias": True,
            "short_conv_kernel_size": 3,
            "kda_safe_gate": False,
            "n_group": 1,
            "topk_group": 1,
        },
    ),
}
