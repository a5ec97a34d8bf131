"""RWKV-7: heads of two sizes, tied and not."""

from typing import Any

_SIZES: dict[str, Any] = {
    "architectures": ["RWKV7ForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "norm_eps": 1e-5,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "a_low_rank_dim": 12,
    "v_low_rank_dim": 8,
    "gate_low_rank_dim": 16,
    "decay_low_rank_dim": 10,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "rwkv7": ("rwkv7", _SIZES),
    "rwkv7_tied": (
        "rwkv7",
        {
            **_SIZES,
            "head_dim": 32,
            "norm_eps": 1e-4,
            "tie_word_embeddings": True,
        },
    ),
}
