"""OpenELM: heads and MLPs that grow from layer to layer, a head of its own, heads without norms."""

from typing import Any

_COMMON: dict[str, Any] = {
    "architectures": ["OpenELMForCausalLM"],
    "vocab_size": 160,
    "model_dim": 64,
    "num_transformer_layers": 4,
    "head_dim": 16,
    "num_query_heads": [2, 4, 4, 6],
    "num_kv_heads": [1, 2, 2, 3],
    "ffn_multipliers": [0.5, 1.15, 1.9, 3.0],
    "ffn_dim_divisor": 16,
    "ffn_with_glu": True,
    "activation_fn_name": "swish",
    "normalization_layer_name": "rms_norm",
    "normalize_qk_projections": True,
    "share_input_output_layers": True,
    "rope_freq_constant": 10000,
    "rope_max_length": 512,
    "max_context_length": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "openelm": ("openelm", _COMMON),
    "openelm_plain": (
        "openelm",
        {
            **_COMMON,
            "head_dim": 32,
            "normalize_qk_projections": False,
            "share_input_output_layers": False,
            "rope_freq_constant": 500,
        },
    ),
}
