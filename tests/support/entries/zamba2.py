"""Zamba2: two shared blocks run three times, with and without positions and attention adapters.

time_step_min is next to nothing, because transformers bounds step sizes by it in one of its two paths only.
"""

from typing import Any

_SHAPE: dict[str, Any] = {
    "layers_block_type": ["linear_attention", "hybrid", "hybrid", "linear_attention", "hybrid"],
    "num_hidden_layers": 5,
    "num_key_value_heads": 4,
    "n_mamba_heads": 8,
    "mamba_d_state": 16,
    "chunk_size": 16,
    "num_mem_blocks": 2,
    "adapter_rank": 8,
    "time_step_min": 1e-9,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "zamba2": ("zamba2", {**_SHAPE, "use_mem_rope": True, "use_shared_attention_adapter": True}),
    "zamba2_plain": (
        "zamba2",
        {
            **_SHAPE,
            "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
            "num_hidden_layers": 3,
            "num_mem_blocks": 1,
            "mamba_ngroups": 2,
            "add_bias_linear": True,
        },
    ),
}
