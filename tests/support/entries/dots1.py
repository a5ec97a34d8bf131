"""dots.llm1, Solar Open, EXAONE MoE and Hunyuan 3: windows, layers without positions, groups of experts."""

from typing import Any

_MIXTURE: dict[str, Any] = {"moe_intermediate_size": 32, "num_experts_per_tok": 3, "num_hidden_layers": 4}
_GROUPS: dict[str, Any] = {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7}
_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "dots1": (
        "dots1",
        {
            **_MIXTURE,
            **_GROUPS,
            "n_routed_experts": 8,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "norm_topk_prob": True,
            "sliding_window": 12,
            "max_window_layers": 2,
            "attention_bias": True,
        },
    ),
    "dots1_plain": (
        "dots1",
        {
            **_MIXTURE,
            "n_routed_experts": 6,
            "n_shared_experts": 1,
            "sliding_window": None,
            "head_dim": 32,
            "tie_word_embeddings": True,
        },
    ),
    "solar_open": (
        "solar_open",
        {
            **_MIXTURE,
            **_GROUPS,
            "n_routed_experts": 8,
            "head_dim": 32,
            "attention_bias": True,
            "rope_parameters": _YARN,
        },
    ),
    "solar_open_plain": (
        "solar_open",
        {
            **_MIXTURE,
            "n_routed_experts": 6,
            "n_shared_experts": 2,
            "head_dim": 16,
            "norm_topk_prob": False,
            "tie_word_embeddings": True,
        },
    ),
    "exaone_moe": (
        "exaone_moe",
        {
            **_MIXTURE,
            **_GROUPS,
            "num_experts": 8,
            "sliding_window": 12,
            "sliding_window_pattern": 4,
            "head_dim": 32,
            "rope_parameters": _YARN,
        },
    ),
    "exaone_moe_listed": (
        "exaone_moe",
        {
            **_MIXTURE,
            "num_experts": 6,
            "num_shared_experts": 2,
            "norm_topk_prob": False,
            "sliding_window": 12,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            "mlp_layer_types": ["dense", "sparse", "dense", "sparse"],
            "tie_word_embeddings": True,
        },
    ),
    "hy_v3": (
        "hy_v3",
        {
            **_MIXTURE,
            "num_experts": 8,
            "head_dim": 32,
            "router_scaling_factor": 1.7,
            "rope_parameters": _YARN,
        },
    ),
    "hy_v3_biases": (
        "hy_v3",
        {
            **_MIXTURE,
            "num_experts": 6,
            "num_shared_experts": 2,
            "head_dim": 16,
            "mlp_layer_types": ["sparse", "dense", "sparse", "dense"],
            "attention_bias": True,
            "enable_moe_fp32_combine": False,
            "tie_word_embeddings": True,
        },
    ),
}
