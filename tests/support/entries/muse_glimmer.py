"""Muse Glimmer: the text tower, inside its wrapper as it is published."""

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
_WRAPPER: dict[str, Any] = {"vision_config": _VISION, "out_hidden_size": 64, "projector_hidden_size": 16}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "muse_glimmer": ("muse_glimmer", {**_WRAPPER, "text_config": {**_TEXT, "num_hidden_layers": 4}}),
    "muse_glimmer_layers": (
        "muse_glimmer",
        {
            **_WRAPPER,
            "text_config": {
                **_TEXT,
                "num_hidden_layers": 3,
                "attention_bias": True,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                "layer_rope_theta": [10000.0, 10000.0, 0],
            },
        },
    ),
}
