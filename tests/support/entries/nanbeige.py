"""Nanbeige 4.2: two passes of a Llama whose heads have a size of their own; with every bias, tied."""

from typing import Any

_COMMON: dict[str, Any] = {
    "architectures": ["NanbeigeForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 70000000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "num_loops": 2,
    "skip_loop_final_norm": False,
    "loop_loss_weights": [],
    "enable_double_loop_split": False,
    "loop_share_kv": False,
    "enable_depth_attention": False,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "nanbeige": ("nanbeige", _COMMON),
    "nanbeige_biases": (
        "nanbeige",
        {
            **_COMMON,
            "num_hidden_layers": 2,
            "num_key_value_heads": 4,
            "head_dim": 16,
            "rope_theta": 10000.0,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
        },
    ),
}
