"""PLaMo: heads of keys and values that are read in turn, and one that all read."""

from typing import Any

_SIZES: dict[str, Any] = {
    "architectures": ["PlamoForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "n_shared_head": 3,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "plamo": ("plamo", {**_SIZES, "hidden_size": 96}),
    "plamo_alone": (
        "plamo",
        {
            **_SIZES,
            "num_attention_heads": 4,
            "n_shared_head": 4,
            "num_hidden_layers": 2,
            "rms_norm_eps": 1e-5,
        },
    ),
}
