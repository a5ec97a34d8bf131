"""Talkie: shares in the place of norms' weights; heads of the stream's size together, and larger ones."""

from typing import Any

_TALKIE: dict[str, Any] = {
    "architectures": ["TalkieForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1.1920928955078125e-07,
    "tie_word_embeddings": False,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "talkie": ("talkie", _TALKIE),
    "talkie_wide": ("talkie", {**_TALKIE, "num_hidden_layers": 1, "head_dim": 24, "rope_theta": 10000.0}),
}
