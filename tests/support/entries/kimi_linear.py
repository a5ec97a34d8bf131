"""Kimi Linear: KDA and latent attention, with and without a query rank, routed in groups."""

from typing import Any

_SHAPE: dict[str, Any] = {
    "num_key_value_heads": 4,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_head_dim": 16,
    "linear_num_heads": 4,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "kimi_linear": ("kimi_linear", {**_SHAPE, "n_group": 4, "topk_group": 2}),
    "kimi_linear_ranked": (
        "kimi_linear",
        {
            **_SHAPE,
            "num_hidden_layers": 2,
            "layer_types": ["full_attention", "linear_attention"],
            "mlp_layer_types": ["sparse", "dense"],
            "q_lora_rank": 24,
            "n_shared_experts": 2,
            "norm_topk_prob": False,
            "attention_bias": True,
            "linear_conv_kernel_dim": 3,
        },
    ),
}
