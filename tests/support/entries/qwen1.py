"""Qwen, the first: one matrix for queries, keys and values; another base of the rotation."""

from typing import Any

from tests.support.entries import SMALL

_COMMON: dict[str, Any] = {
    **{key: value for key, value in SMALL.items() if key != "num_key_value_heads"},
    "architectures": ["QWenLMHeadModel"],
    "intermediate_size": 192,
    "kv_channels": 16,
    "layer_norm_epsilon": 1e-6,
    "no_bias": True,
    "rotary_emb_base": 10000,
    "rotary_pct": 1.0,
    "scale_attn_weights": True,
    "seq_length": 128,
    "use_dynamic_ntk": True,
    "use_logn_attn": True,
    "tie_word_embeddings": False,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen": ("qwen", _COMMON),
    "qwen_wide": (
        "qwen",
        {
            **_COMMON,
            "num_attention_heads": 2,
            "kv_channels": 32,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "layer_norm_epsilon": 1e-5,
        },
    ),
}
