"""Llama, Mistral, Qwen2 and Qwen3: biases, tied heads, head norms, windows and rope variants."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"head_dim": 16}),
    "llama_biases_tied": ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama_llama3_rope": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "llama_linear_rope": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "llama_yarn_rope": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral_window": ("mistral", {"sliding_window": 12, "head_dim": 32}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2_window": ("qwen2", {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 2}),
    "qwen3": ("qwen3", {"head_dim": 32}),
}
