"""Kinds without experts."""

from typing import Any

from tests.support.foreign_entries import longrope, ropes

_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
_LONG = longrope(4, 32)
_SAME = {**_LONG, "short_factor": _LONG["long_factor"]}
_UNTIED = {"tie_word_embeddings": False}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "helium": ("helium", {"head_dim": 16}),
    "minicpm3": ("minicpm3", {**_LATENT, **_UNTIED, "dim_model_base": 16, "initializer_range": 0.1}),
}
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "helium": {
        **ropes(),
        "hidden_size and head_dim": {"hidden_size": 128, "head_dim": 32},
        "heads and head_dim": {"num_attention_heads": 8, "head_dim": 8},
        "head_dim null": {"head_dim": None},
    },
    "minicpm3": {
        **ropes(),
        "tied, longrope same": {"tie_word_embeddings": True, "rope_parameters": _SAME},
        "hidden_size and v_head_dim": {"hidden_size": 128, "v_head_dim": 32},
        "heads": {"num_attention_heads": 2, "num_key_value_heads": 2, "v_head_dim": 32},
        "longrope": {"rope_parameters": _LONG},
        "longrope same": {"rope_parameters": _SAME},
        "longrope unreached": {"rope_parameters": longrope(4, 128)},
        "longrope as long": {"rope_parameters": longrope(4, 256)},
        "longrope factor": {"rope_parameters": {**_SAME, "factor": 3.0}},
        "longrope attention": {"rope_parameters": {**_SAME, "attention_factor": 1.5}},
    },
}
