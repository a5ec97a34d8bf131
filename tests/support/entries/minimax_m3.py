"""MiniMax M3: blocks far shorter than the prompt, chosen among twelve; dense layers and mixtures."""

from typing import Any

_SIZES: dict[str, Any] = {
    "head_dim": 32,
    "rotary_dim": 16,
    "partial_rotary_factor": 0.5,
    "intermediate_size": 32,
    "dense_intermediate_size": 96,
    "shared_intermediate_size": 32,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "index_n_heads": 2,
    "index_block_size": 4,
}
_FULL, _CHOOSING = "full_attention", "minimax_m3_sparse"

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "minimax_m3": (
        "minimax_m3_vl_text",
        {
            **_SIZES,
            "num_hidden_layers": 3,
            "layer_types": [_FULL, _CHOOSING, _CHOOSING],
            "mlp_layer_types": ["dense", "sparse", "sparse"],
            "index_head_dim": 20,
            "index_topk_blocks": 3,
        },
    ),
    "minimax_m3_local": (
        "minimax_m3_vl_text",
        {
            **_SIZES,
            "num_hidden_layers": 2,
            "layer_types": [_CHOOSING, _FULL],
            "index_head_dim": 17,
            "index_topk_blocks": 5,
            "index_local_blocks": 3,
            "shared_intermediate_size": 48,
            "routed_scaling_factor": 1.5,
            "swiglu_alpha": 1.5,
            "swiglu_limit": 0.5,
            "tie_word_embeddings": True,
        },
    ),
    "minimax_m3_wrapped": (
        "minimax_m3_vl",
        {
            "text_config": {
                **_SIZES,
                "num_local_experts": 6,
                "vocab_size": 160,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "max_position_embeddings": 256,
                "pad_token_id": 0,
                "bos_token_id": 1,
                "eos_token_id": 2,
                "num_hidden_layers": 2,
                "layer_types": [_CHOOSING, _CHOOSING],
                "mlp_layer_types": ["dense", "sparse"],
                "index_head_dim": 16,
                "index_topk_blocks": 2,
                "index_local_blocks": 0,
            },
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 56,
            },
            "projector_hidden_size": 32,
        },
    ),
}
