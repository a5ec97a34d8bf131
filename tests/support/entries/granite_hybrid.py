"""Granite 4 hybrid: routed and dense, with and without positions, several groups; and Bamba."""

from typing import Any

_MAMBA: dict[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_state": 16,
    "mamba_chunk_size": 16,
}
_GRANITE: dict[str, Any] = {
    **_MAMBA,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "intermediate_size": 32,
    "shared_intermediate_size": 48,
    "embedding_multiplier": 1.4,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.8,
    "logits_scaling": 1.7,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "granitemoehybrid": (
        "granitemoehybrid",
        {**_GRANITE, "num_local_experts": 5, "num_experts_per_tok": 2, "mamba_n_groups": 2},
    ),
    "granitemoehybrid_dense": (
        "granitemoehybrid",
        {
            **_GRANITE,
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "position_embedding_type": "rope",
            "tie_word_embeddings": True,
            "attention_bias": True,
            "mamba_proj_bias": True,
        },
    ),
    "bamba": (
        "bamba",
        {**_MAMBA, "num_hidden_layers": 3, "attn_layer_indices": [1], "mamba_n_groups": 2, "mlp_bias": True},
    ),
}
