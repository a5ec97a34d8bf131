"""T5Gemma: stacks of different sizes, sliding and full layers in both, caps, a scalar that is not the head
size, biases, and a head of its own.
"""

from typing import Any

_ENCODER: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "query_pre_attn_scalar": 12,
    "sliding_window": 5,
    "attn_logit_softcapping": 6.0,
    "max_position_embeddings": 256,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
}
_DECODER: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "query_pre_attn_scalar": 24,
    "sliding_window": 12,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 8.0,
    "max_position_embeddings": 256,
    "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
}
_BIASES = {"attention_bias": True}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "t5gemma": ("t5gemma", {"encoder": _ENCODER, "decoder": _DECODER, "vocab_size": 160}),
    "t5gemma_biases": (
        "t5gemma",
        {
            "encoder": {**_ENCODER, **_BIASES, "attn_logit_softcapping": None},
            "decoder": {**_DECODER, **_BIASES, "final_logit_softcapping": None},
            "vocab_size": 160,
            "tie_word_embeddings": False,
        },
    ),
}
