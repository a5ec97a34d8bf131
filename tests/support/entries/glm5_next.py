"""GLM-5.3: delta nets with a floor, an indexer that pools, a dense layer and sparse ones."""

from typing import Any

from tests.support.entries import SMALL

_TEXT: dict[str, Any] = {
    **SMALL,
    "model_type": "glm5_next_text",
    "num_key_value_heads": 4,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 0,
    "v_head_dim": 24,
    "linear_num_heads": 4,
    "linear_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "index_n_heads": 9,  # see Qwen4's
    "index_head_dim": 16,
    "index_topk": 12,
    "index_kpool": 4,
    "hc_mult": 3,
    "hc_sinkhorn_iters": 5,
    "swiglu_limit": 0.7,
}
_VISION: dict[str, Any] = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_heads": 2,
    "out_hidden_size": 64,
    "projection_intermediate_size": 32,
    "image_size": 28,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "glm5_next": (
        "glm5_next",
        {
            "vision_config": _VISION,
            "text_config": {
                **_TEXT,
                "layer_types": [
                    "linear_attention",
                    "indexed_attention",
                    "linear_attention",
                    "indexed_attention",
                ],
                "n_group": 2,
                "topk_group": 1,
            },
        },
    ),
}
