"""DiffLlama: pairs of heads, in one group of keys and in several."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "diffllama": ("diffllama", {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16}),
    "diffllama_biases": (
        "diffllama",
        {
            "attention_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
}
