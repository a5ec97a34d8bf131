"""The first GPT, with the activation that files have, and with another."""

from typing import Any

_GPT: dict[str, Any] = {
    "vocab_size": 160,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 128,
    "afn": "gelu",
    "num_key_value_heads": None,
    "intermediate_size": None,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "openai_gpt": ("openai-gpt", _GPT),
    "openai_gpt_silu": (
        "openai-gpt",
        {**_GPT, "n_layer": 1, "num_hidden_layers": 1, "afn": "silu", "layer_norm_epsilon": 1e-3},
    ),
}
