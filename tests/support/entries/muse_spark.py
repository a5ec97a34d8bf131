"""Muse Spark: the text model inside its wrapper, mixtures alone and beside a dense layer."""

from typing import Any

_TEXT: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "sliding_window": 12,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "output_multiplier": 0.8,
    "final_logit_softcapping": 5.0,
    "post_norm_eps": 1e-3,
    "qk_scale_factor": 2.0,
    "moe_hidden_size": 32,
    "moe_intermediate_size": 48,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
}
_VISION: dict[str, Any] = {
    "patch_size": 2,
    "pos_emb_height": 4,
    "pos_emb_width": 4,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
}
_AUDIO: dict[str, Any] = {
    "patch_sizes": [2],
    "hidden_sizes": [8],
    "depths": [1],
    "num_hidden_layers": 1,
    "out_hidden_size": 64,
}
_WRAPPER: dict[str, Any] = {
    "vision_config": _VISION,
    "audio_config": _AUDIO,
    "out_hidden_size": 64,
    "projector_hidden_size": 16,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "muse_spark": ("muse_spark", {**_WRAPPER, "text_config": {**_TEXT, "num_hidden_layers": 3}}),
    "muse_spark_layers": (
        "muse_spark",
        {
            **_WRAPPER,
            "text_config": {
                **_TEXT,
                "num_hidden_layers": 2,
                "attention_bias": True,
                "layer_types": ["sliding_attention", "full_attention"],
                "layer_rope_theta": [0, 500000.0],
                "mlp_layer_types": ["dense", "sparse"],
                "routed_scaling_factor": 1.5,
                "residual_gate_temperature": 0.7,
                "hidden_act": "gelu",
            },
        },
    ),
}
