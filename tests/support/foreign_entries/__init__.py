"""What the reference checkpoints of mlx-lm's classes look like, and what is changed in them.

ENTRIES: entry -> (transformers' model_type, config fields beyond SMALL). An entry should use every layer kind
and every optional tensor of its kind. CHANGES: entry -> name -> what is changed beyond the one field at a
time that the generator changes anyway: config fields, and under "shift" constants that are added to the
tensors whose names end so.
"""

from typing import Any

SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LINEAR: dict[str, Any] = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
DYNAMIC: dict[str, Any] = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
}
THETA: dict[str, Any] = {"rope_type": "default", "rope_theta": 500.0}
ROPES: dict[str, dict[str, Any]] = {
    "rope theta": THETA,
    "rope linear": LINEAR,
    "rope dynamic": DYNAMIC,
    "rope llama3": LLAMA3,
    "rope yarn": YARN,
    "rope yarn factor": {**YARN, "factor": 4.0},
    "rope yarn betas": {**YARN, "beta_fast": 4.0, "beta_slow": 0.5},
    "rope yarn mscale": {**YARN, "mscale": 1.5, "mscale_all_dim": 0.5},
    "rope yarn attention_factor": {**YARN, "attention_factor": 1.7},
    "rope yarn truncate": {**YARN, "truncate": False},
    "rope partial": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
}


def longrope(pairs: int, original: int) -> dict[str, Any]:
    """Factors for heads that turn so many pairs."""
    return {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0 + 0.1 * i for i in range(pairs)],
        "long_factor": [2.0 + 0.5 * i for i in range(pairs)],
        "original_max_position_embeddings": original,
    }


def ropes(keep: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Every way to scale positions, as changes; keep: what each block says besides."""
    return {name: {"rope_parameters": {**(keep or {}), **block}} for name, block in ROPES.items()}
