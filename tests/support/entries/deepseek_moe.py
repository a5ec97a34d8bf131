"""DeepSeekMoE: dense layers before and between mixtures, shared experts and none, biases."""

from typing import Any

from tests.support.entries import SMALL

_COMMON: dict[str, Any] = {
    **SMALL,
    "architectures": ["DeepseekForCausalLM"],
    "hidden_act": "silu",
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_layer_freq": 1,
    "norm_topk_prob": False,
    "scoring_func": "softmax",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "tie_word_embeddings": False,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "deepseek": ("deepseek", {**_COMMON, "first_k_dense_replace": 1, "n_shared_experts": 2}),
    "deepseek_biases": (
        "deepseek",
        {
            **_COMMON,
            "num_hidden_layers": 5,
            "first_k_dense_replace": 0,
            "moe_layer_freq": 2,
            "n_shared_experts": None,
            "attention_bias": True,
            "rope_scaling": {"type": "linear", "factor": 4.0},
        },
    ),
}
