"""MiMo 7B: Qwen2's layers, a tied head, a scaled rope."""

from typing import Any

from tests.support.entries import SMALL

_COMMON: dict[str, Any] = {
    **SMALL,
    "architectures": ["MiMoForCausalLM"],
    "hidden_act": "silu",
    "attention_bias": True,
    "head_dim": 16,
    "num_nextn_predict_layers": 0,
    "rms_norm_eps": 1e-5,
    "rope_theta": 640000.0,
    "rope_scaling": None,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mimo": ("mimo", _COMMON),
    "mimo_tied": ("mimo", {**_COMMON, "rope_scaling": _YARN, "tie_word_embeddings": True}),
}
