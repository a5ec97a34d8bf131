"""Inkling 2: whole layers first and last in a block, several blocks; passes over its middle."""

from typing import Any

_SIZES: dict[str, Any] = {
    "unpadded_vocab_size": 160,
    "head_dim": 16,
    "swa_num_attention_heads": 6,
    "swa_num_key_value_heads": 3,
    "swa_head_dim": 8,
    "sliding_window_size": 9,
    "d_rel": 8,
    "rel_extent": 20,
    "log_scaling_n_floor": 12,
    "qk_l2_clip_threshold": 2.5,
    "rel_l2_clip_threshold": 1.5,
    "intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 4,
    "route_scale": 1.0,
    "mlp_gate_softcap": 0.5,
    "mlp_up_softcap": 1.5,
    "final_logit_softcapping": 2.0,
}
_SLIDES, _WHOLE = "hybrid_sliding", "hybrid"

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "inkling2_text": (
        "inkling2_text",
        {
            **_SIZES,
            "num_hidden_layers": 5,
            "n_layers_per_attn_res_block": 2,
            "layer_types": [_WHOLE, _SLIDES, _SLIDES, _WHOLE, _SLIDES],
        },
    ),
    "inkling2_loop_text": (
        "inkling2_loop_text",
        {
            **_SIZES,
            "num_hidden_layers": 5,
            "n_layers_per_attn_res_block": 2,
            "layer_types": [_SLIDES, _WHOLE, _SLIDES, _WHOLE, _SLIDES],
            "n_routed_experts": 4,
            "route_scale": 0.3,
            "loop_layer_index_start": 2,
            "loop_layer_index_end": 4,
            "loop_num_passes": 3,
            "loop_gate_rank": 12,
            "conv_kernel_size": 3,
        },
    ),
}
