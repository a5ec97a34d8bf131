"""Zamba 1: two and four heads of a mixer, the block run at the layers that a list and a period name."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "zamba": (
        "zamba",
        {
            "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
            "num_hidden_layers": 4,
            "num_key_value_heads": 2,
            "mamba_d_state": 8,
            "mamba_dt_rank": 6,
        },
    ),
    "zamba_biases": (
        "zamba",
        {
            "num_hidden_layers": 5,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "n_mamba_heads": 4,
            "mamba_proj_bias": True,
            "mamba_conv_bias": False,
            "mamba_d_conv": 3,
        },
    ),
}
