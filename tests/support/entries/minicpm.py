"""MiniCPM: multipliers of embeddings, of what layers add and of what the head reads; a scaled rope."""

from typing import Any

from tests.support.entries import SMALL

_COMMON: dict[str, Any] = {
    **SMALL,
    "architectures": ["MiniCPMForCausalLM"],
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "scale_emb": 12,
    "scale_depth": 1.4,
    "dim_model_base": 16,
    "tie_word_embeddings": False,
}
_FACTORS = [1.0, 1.1, 1.3, 1.7, 2.5, 4.0, 6.0, 9.0]

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "minicpm": ("minicpm", _COMMON),
    "minicpm_longrope": (  # one list for all lengths, as mlx-lm has it
        "minicpm",
        {
            **_COMMON,
            "rope_scaling": {
                "rope_type": "longrope",
                "long_factor": _FACTORS,
                "short_factor": _FACTORS,
                "original_max_position_embeddings": 128,
            },
        },
    ),
    "minicpm_linear_rope": (
        "minicpm",
        {
            **_COMMON,
            "num_key_value_heads": 4,
            "scale_emb": 2.5,
            "scale_depth": 0.7,
            "rope_scaling": {"rope_type": "linear", "factor": 4.0},
        },
    ),
    "minicpm_moe": ("minicpm", {**_COMMON, "num_experts": 4, "num_experts_per_tok": 2}),
}
