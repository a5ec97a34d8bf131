"""Nemotron-H: all four kinds of layer, grouped experts, experts in a latent space.

time_step_min is next to nothing, because transformers bounds step sizes by it in one of its two paths only.
"""

from typing import Any

_SHAPE: dict[str, Any] = {
    "head_dim": 16,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "ssm_state_size": 16,
    "chunk_size": 16,
    "time_step_min": 1e-9,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 48,
    "routed_scaling_factor": 1.5,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "nemotron_h": (
        "nemotron_h",
        {
            **_SHAPE,
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "moe", "linear_attention"],
            "n_group": 4,
            "topk_group": 2,
            "use_bias": True,
            "mlp_bias": True,
        },
    ),
    "nemotron_h_latent": (
        "nemotron_h",
        {
            **_SHAPE,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
            "moe_latent_size": 32,
            "norm_topk_prob": False,
        },
    ),
}
