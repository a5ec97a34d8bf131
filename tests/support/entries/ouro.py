"""Ouro: passed four times, as published; twice, with windows and fewer key heads."""

from typing import Any

_COMMON: dict[str, Any] = {
    "architectures": ["OuroForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_scaling": None,
    "attention_dropout": 0.0,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 3,
    "layer_types": ["full_attention"] * 3,
    "tie_word_embeddings": False,
    "total_ut_steps": 4,
    "early_exit_threshold": 1.0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "use_cache": True,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "ouro": ("ouro", _COMMON),
    "ouro_window": (
        "ouro",
        {
            **_COMMON,
            "num_key_value_heads": 2,
            "rope_theta": 10000.0,
            "use_sliding_window": True,
            "sliding_window": 9,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "total_ut_steps": 2,
            "tie_word_embeddings": True,
        },
    ),
}
