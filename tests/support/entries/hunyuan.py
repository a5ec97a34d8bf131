"""Hunyuan: norms after rotation, the alpha base; experts, as many as a layer asks for.

The Large one: keys that several layers read, one expert beside one that always answers, sizes that
differ from layer to layer; the 7B before V1, dense and without norms.
"""

from typing import Any

_LARGE: dict[str, Any] = {
    "architectures": ["HunYuanForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "attention_bias": False,
    "moe_topk": 1,
    "num_experts": 8,
    "num_shared_expert": 1,
    "use_mixed_mlp_moe": True,
    "use_qk_norm": True,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "use_cla": True,
    "cla_share_factor": 2,
    "rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"},
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "hunyuan": (
        "hunyuan_v1_dense",
        {
            "head_dim": 32,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0},
        },
    ),
    "hunyuan_moe": (
        "hunyuan_v1_moe",
        {
            "head_dim": 32,
            "num_experts": 8,
            "moe_topk": [3, 2, 4, 1],
            "intermediate_size": 48,
            "tie_word_embeddings": True,
        },
    ),
    "hunyuan_biases": ("hunyuan_v1_dense", {"head_dim": 16, "attention_bias": True}),
    "hunyuan_large": ("hunyuan", _LARGE),
    "hunyuan_large_lists": (
        "hunyuan",
        {
            **_LARGE,
            "num_attention_heads": 8,
            "cla_share_factor": 3,
            "attention_bias": True,
            "moe_intermediate_size": [48, 32, 40, 56],
            "num_shared_expert": [2, 1, 1, 2],
        },
    ),
    "hunyuan_large_dense": (
        "hunyuan",
        {**_LARGE, "num_experts": 1, "use_cla": False, "use_mixed_mlp_moe": False, "use_qk_norm": False},
    ),
}
