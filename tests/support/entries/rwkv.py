"""RWKV-4, as it is, and with a stream that is halved behind every second layer."""

from typing import Any

_RWKV: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "context_length": 256,
    "rescale_every": 0,
    "num_attention_heads": None,
    "num_key_value_heads": None,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "rwkv": ("rwkv", _RWKV),
    "rwkv_halved": (
        "rwkv",
        {
            **_RWKV,
            "num_hidden_layers": 5,
            "rescale_every": 2,
            "layer_norm_epsilon": 1e-3,
            "tie_word_embeddings": True,
        },
    ),
}
