"""PLaMo 2: Mamba layers and attention layers in turn, under a window and under none, tied and not."""

from typing import Any

_SIZES: dict[str, Any] = {
    "architectures": ["Plamo2ForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size_per_head": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "attention_window_size": 9,
    "full_attention_idx": None,
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
    "mamba_num_heads": 6,
    "mamba_step": 2,
    "mamba_chunk_size": 16,
    "mamba_enabled": True,
    "tie_word_embeddings": True,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "plamo2": ("plamo2", _SIZES),
    "plamo2_untied": (
        "plamo2",
        {
            **_SIZES,
            "num_hidden_layers": 5,
            "num_key_value_heads": 1,
            "hidden_size_per_head": 32,
            "rms_norm_eps": 1e-5,
            "attention_window_size": 256,
            "mamba_d_conv": 3,
            "mamba_num_heads": 4,
            "mamba_step": 4,
            "tie_word_embeddings": False,
        },
    ),
}
