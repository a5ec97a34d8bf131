"""RWKV-5 and 6: heads of two sizes, a stream that is halved behind some layers and behind none."""

from typing import Any

_SIZES: dict[str, Any] = {
    "architectures": ["Rwkv6ForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "attention_hidden_size": 64,
    "head_size": 16,
    "head_size_divisor": 8,
    "layer_norm_epsilon": 1e-5,
    "rescale_every": 2,
    "context_length": 4096,
    "tie_word_embeddings": False,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "rwkv6": ("rwkv6", _SIZES),
    "rwkv6_whole": (
        "rwkv6",
        {**_SIZES, "num_hidden_layers": 2, "head_size": 32, "head_size_divisor": 4, "rescale_every": 0},
    ),
    "rwkv5": ("rwkv5", {**_SIZES, "architectures": ["Rwkv5ForCausalLM"]}),
}
