"""LongCat-Flash: two attentions a layer, experts without matrices, tied and with biases."""

from typing import Any

_SHAPE: dict[str, Any] = {
    "num_hidden_layers": 4,
    "num_layers": 2,
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "head_dim": 8,
    "moe_topk": 3,
    "n_routed_experts": 5,
    "zero_expert_num": 3,
    "expert_ffn_hidden_size": 32,
    "routed_scaling_factor": 2.5,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "longcat_flash": ("longcat_flash", _SHAPE),
    "longcat_flash_tied": (
        "longcat_flash",
        {
            **_SHAPE,
            "num_hidden_layers": 2,
            "num_layers": 1,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "hidden_act": "gelu",
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "mscale_all_dim": 0.8,
                "original_max_position_embeddings": 64,
            },
        },
    ),
}
