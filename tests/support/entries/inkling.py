"""Inkling: windows with heads of their own, dense and sparse layers, queries that grow by position."""

from typing import Any

_SIZES: dict[str, Any] = {
    "head_dim": 16,
    "swa_num_attention_heads": 6,
    "swa_num_key_value_heads": 3,
    "swa_head_dim": 8,
    "sliding_window_size": 9,
    "d_rel": 8,
    "rel_extent": 20,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "inkling_text": (
        "inkling_text",
        {
            **_SIZES,
            "local_layer_ids": [0, 2],
            "mlp_layer_types": ["dense", "sparse", "sparse", "dense"],
            "log_scaling_n_floor": 12,
        },
    ),
    "inkling_plain": (
        "inkling_text",
        {
            **_SIZES,
            "num_hidden_layers": 6,
            "conv_kernel_size": 3,
            "n_shared_experts": 1,
            "route_scale": 2.5,
            "logits_mup_width_multiplier": 6.0,
        },
    ),
}
