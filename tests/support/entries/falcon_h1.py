"""Falcon-H1 with every multiplier away from one; grouped norms before and after the gate, and no norm."""

from typing import Any

_SHAPE: dict[str, Any] = {
    "num_hidden_layers": 3,
    "mamba_d_ssm": 96,
    "mamba_n_heads": 6,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_chunk_size": 16,
    "lm_head_multiplier": 0.7,
    "embedding_multiplier": 1.3,
    "mlp_multipliers": [0.9, 1.2],
    "key_multiplier": 0.6,
    "attention_out_multiplier": 1.1,
    "attention_in_multiplier": 0.8,
    "ssm_multipliers": [0.7, 1.2, 0.9, 1.3, 0.8],
    "ssm_in_multiplier": 1.2,
    "ssm_out_multiplier": 0.9,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon_h1": ("falcon_h1", _SHAPE),
    "falcon_h1_norm": (
        "falcon_h1",
        {
            **_SHAPE,
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": False,
            "mamba_n_groups": 2,
            "attention_bias": True,
            "mlp_bias": True,
            "mamba_proj_bias": True,
            "projectors_bias": True,
        },
    ),
    "falcon_h1_norm_first": (
        "falcon_h1",
        {
            **_SHAPE,
            "num_hidden_layers": 2,
            "mamba_rms_norm": True,
            "mamba_n_groups": 2,
            "mamba_d_ssm": None,
            "mamba_d_head": "auto",
            "mamba_n_heads": 8,
            "tie_word_embeddings": True,
        },
    ),
}
