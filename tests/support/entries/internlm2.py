"""InternLM2: groups of two queries and of four, biases, a tied head."""

from typing import Any

from tests.support.entries import SMALL

_COMMON: dict[str, Any] = {
    **SMALL,
    "architectures": ["InternLM2ForCausalLM"],
    "hidden_act": "silu",
    "bias": False,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "internlm2": ("internlm2", _COMMON),
    "internlm2_biases": (
        "internlm2",
        {
            **_COMMON,
            "num_key_value_heads": 1,
            "bias": True,
            "tie_word_embeddings": True,
            "rope_scaling": {"type": "linear", "factor": 4.0},
        },
    ),
}
