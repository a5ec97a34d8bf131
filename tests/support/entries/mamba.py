"""Mamba, Falcon-Mamba and Jamba: scans with and without norms, routed layers."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mamba": ("mamba", {"num_hidden_layers": 3, "state_size": 8}),
    "mamba_biases": (
        "mamba",
        {
            "num_hidden_layers": 2,
            "state_size": 8,
            "use_bias": True,
            "use_conv_bias": False,
            "time_step_rank": 6,
            "tie_word_embeddings": False,
        },
    ),
    "falcon_mamba": ("falcon_mamba", {"num_hidden_layers": 3, "state_size": 8}),
    "jamba": (
        "jamba",
        {
            "num_hidden_layers": 4,
            "attn_layer_period": 3,
            "attn_layer_offset": 1,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 48,
            "mamba_d_state": 8,
            "mamba_proj_bias": True,
        },
    ),
}
