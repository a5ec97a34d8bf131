"""Baichuan M1: layers with a window have more heads of keys, smaller ones."""

from typing import Any

from tests.support.entries import SMALL

_COMMON: dict[str, Any] = {
    **SMALL,
    "architectures": ["BaichuanM1ForCausalLM"],
    "conv_window": 2,
    "hidden_act": "silu",
    "num_swa_attention_heads": 8,
    "num_swa_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "rope_theta": 100000.0,
    "sliding_window": 8,
    "sliding_window_layers": [1, 3],
    "tie_word_embeddings": False,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "baichuan_m1": ("baichuan_m1", _COMMON),
    "baichuan_m1_plain": (
        "baichuan_m1",
        {
            **{name: value for name, value in _COMMON.items() if not name.startswith("num_swa_")},
            "num_hidden_layers": 3,
            "sliding_window_layers": [0],
        },
    ),
}
