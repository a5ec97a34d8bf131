"""Ling and Ring: a softmax over all experts and a head of unit columns; groups, corrections, a part of each
head turned.
"""

from typing import Any

from tests.support.entries import SMALL

_COMMON: dict[str, Any] = {
    **SMALL,
    "num_hidden_layers": 3,
    "hidden_act": "silu",
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_shared_experts": 2,
    "norm_topk_prob": True,
    "rms_norm_eps": 1e-6,
    "rope_theta": 600000.0,
    "rope_scaling": None,
    "use_bias": False,
    "tie_word_embeddings": False,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bailing_moe": (
        "bailing_moe",
        {
            **_COMMON,
            "architectures": ["BailingMoeForCausalLM"],
            "first_k_dense_replace": 0,
            "use_qkv_bias": False,
            "use_qk_norm": False,
            "norm_head": True,
            "norm_softmax": False,
        },
    ),
    "bailing_moe_v2": (
        "bailing_moe",
        {
            **_COMMON,
            "architectures": ["BailingMoeV2ForCausalLM"],
            "first_k_dense_replace": 1,
            "head_dim": 16,
            "use_qkv_bias": False,
            "use_qk_norm": True,
            "partial_rotary_factor": 0.5,
            "moe_router_enable_expert_bias": True,
            "score_function": "sigmoid",
            "routed_scaling_factor": 2.5,
            "num_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "num_nextn_predict_layers": 0,
        },
    ),
}
