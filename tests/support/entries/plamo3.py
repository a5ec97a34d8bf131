"""PLaMo 3: layers under a window and one under none; tied and not."""

from typing import Any

_SIZES: dict[str, Any] = {
    "architectures": ["Plamo3ForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "window_size": 9,
    "sliding_window_pattern": 3,
    "rope_theta": 1000000,
    "rope_local_theta": 10000,
    "tie_word_embeddings": True,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "plamo3": ("plamo3", _SIZES),
    "plamo3_untied": (
        "plamo3",
        {
            **_SIZES,
            "num_hidden_layers": 2,
            "head_dim": 16,
            "rms_norm_eps": 1e-5,
            "window_size": 256,
            "sliding_window_pattern": 2,
            "rope_local_theta": 500,
            "tie_word_embeddings": False,
        },
    ),
}
