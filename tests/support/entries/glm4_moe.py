"""GLM-4.5 to 4.7: normed heads, half of each rotated, grouped experts behind a dense layer."""

from typing import Any

_MIXTURE: dict[str, Any] = {
    "moe_intermediate_size": 32,
    "num_experts_per_tok": 3,
    "n_routed_experts": 8,
    "num_hidden_layers": 3,
    "routed_scaling_factor": 1.7,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "glm4_moe": (
        "glm4_moe",
        {
            **_MIXTURE,
            "head_dim": 16,
            "use_qk_norm": True,
            "attention_bias": True,
            "n_group": 4,
            "topk_group": 2,
        },
    ),
    "sarvam_moe": (
        "sarvam_moe",
        {
            **_MIXTURE,
            "head_dim": 16,
            "attention_bias": True,
            "n_group": 4,
            "topk_group": 2,
            "n_shared_experts": 2,
        },
    ),
    "glm4_moe_plain": ("glm4_moe", {**_MIXTURE, "first_k_dense_replace": 2, "norm_topk_prob": False}),
}
