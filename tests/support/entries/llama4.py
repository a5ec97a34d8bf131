"""Llama 4: short chunks, layers without positions, temperature, both kinds of feed-forward."""

from typing import Any

_TEXT: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 32,
    "intermediate_size_mlp": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "num_local_experts": 4,
    "interleave_moe_layer_step": 2,
    "attention_chunk_size": 12,
    "no_rope_layers": [1, 1, 1, 0],
    "floor_scale": 8,
    "attn_scale": 0.3,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama4_text": ("llama4_text", {**_TEXT, "num_experts_per_tok": 2, "attention_bias": True}),
    "llama4": (
        "llama4",
        {
            "text_config": _TEXT,
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 8,
                "patch_size": 4,
                "vision_output_dim": 16,
                "projector_input_dim": 16,
                "projector_output_dim": 16,
            },
        },
    ),
}
