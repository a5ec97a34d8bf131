"""Mamba-2: one and several groups, biases, tied heads, bounded step sizes."""

from typing import Any

_SHAPE: dict[str, Any] = {
    "num_heads": 8,
    "head_dim": 16,
    "state_size": 16,
    "chunk_size": 16,
    "num_hidden_layers": 3,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mamba2": ("mamba2", {**_SHAPE, "n_groups": 1}),
    "mamba2_groups": (
        "mamba2",
        {**_SHAPE, "n_groups": 2, "use_bias": True, "use_conv_bias": False, "tie_word_embeddings": True},
    ),
    "mamba2_bounded": ("mamba2", {**_SHAPE, "n_groups": 4, "time_step_limit": (0.2, 0.6)}),
}
