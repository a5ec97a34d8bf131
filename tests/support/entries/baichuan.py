"""Baichuan 1 and 2: rotated, as the 7B are, and with ALiBi, as the 13B; heads of Baichuan 2 are normed."""

from typing import Any

_COMMON: dict[str, Any] = {
    "architectures": ["BaichuanForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
_SECOND = {"model_max_length": 256, "z_loss_weight": 0}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "baichuan": (
        "baichuan",
        {**_COMMON, "architectures": ["BaiChuanForCausalLM"], "max_position_embeddings": 256},
    ),
    "baichuan2": ("baichuan", {**_COMMON, **_SECOND, "max_position_embeddings": 256}),
    "baichuan_alibi": ("baichuan", {**_COMMON, "num_attention_heads": 8, "model_max_length": 256}),
    "baichuan2_alibi": (
        "baichuan",
        {**_COMMON, **_SECOND, "hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 3},
    ),
}
