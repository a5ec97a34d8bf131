"""GPT-OSS: sinks, alternating windows, YaRN without rounding, clipped experts with biases."""

from typing import Any

_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 64,
}
_COMMON: dict[str, Any] = {
    "head_dim": 16,
    "num_local_experts": 4,
    "intermediate_size": 64,
    "sliding_window": 12,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_oss": (
        "gpt_oss",
        {
            **_COMMON,
            "num_experts_per_tok": 2,
            "swiglu_limit": 1.5,
            "rope_parameters": {**_YARN, "truncate": False},
        },
    ),
    "gpt_oss_truncated": (
        "gpt_oss",
        {
            **_COMMON,
            "num_experts_per_tok": 3,
            "swiglu_alpha": 1.3,
            "attention_bias": False,
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "rope_parameters": {**_YARN, "truncate": True},
        },
    ),
}
