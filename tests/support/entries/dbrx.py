"""DBRX: clipped; and with bounds that nothing reaches and weights that are not normed. transformers' class
computes nothing where there are no bounds.
"""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "dbrx": (
        "dbrx",
        {
            "d_model": 64,
            "attn_config": {"kv_n_heads": 2, "clip_qkv": 2.0, "rope_theta": 10000.0},
            "ffn_config": {"ffn_hidden_size": 128, "moe_num_experts": 6, "moe_top_k": 3},
        },
    ),
    "dbrx_plain": (
        "dbrx",
        {
            "d_model": 64,
            "attn_config": {"kv_n_heads": 4, "clip_qkv": 1000.0, "rope_theta": 500000.0},
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500000.0},
            "ffn_config": {
                "ffn_hidden_size": 32,
                "moe_num_experts": 4,
                "moe_top_k": 2,
                "moe_normalize_expert_weights": None,
                "ffn_act_fn": {"name": "gelu"},
            },
        },
    ),
}
