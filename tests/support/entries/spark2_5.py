"""Spark-X2.5: layers that slide and turn whole heads, whole ones that turn a part, a gate for each head."""

from typing import Any

_SPARK: dict[str, Any] = {
    "architectures": ["Spark2_5ForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "hidden_act": "gelu",
    "attention_bias": False,
    "mlp_bias": False,
    "headwise_attn_output_gate": True,
    "gate_attn_act_mode": "sigmoid",
    "layer_types": [*["sliding_attention"] * 3, "full_attention", "sliding_attention"],
    "sliding_window": 9,
    "rope_parameters": {
        "full_attention": {"rope_theta": 5000000.0, "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_theta": 10000.0, "partial_rotary_factor": 1.0},
    },
    "tie_word_embeddings": True,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "spark2_5": ("spark2_5", _SPARK),
    "spark2_5_biases": (
        "spark2_5",
        {
            **_SPARK,
            "num_hidden_layers": 2,
            "layer_types": ["full_attention", "sliding_attention"],
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": False,
        },
    ),
}
