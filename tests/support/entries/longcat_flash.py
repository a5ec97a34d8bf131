"""LongCat-Flash: two attentions a layer, experts without matrices, tied, with biases; Lite with n-grams."""

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

_LITE: dict[str, Any] = {
    **{name: value for name, value in _SHAPE.items() if name not in ("num_hidden_layers", "head_dim")},
    "architectures": ["LongcatFlashNgramForCausalLM"],
    "vocab_size": 160,
    "hidden_size": 64,
    "ffn_hidden_size": 96,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "mla_scale_q_lora": True,
    "mla_scale_kv_lora": True,
    "zero_expert_type": "identity",
    "norm_topk_prob": False,
    "router_bias": False,
    "ngram_vocab_size_ratio": 3,
    "emb_neighbor_num": 4,
    "emb_split_num": 2,
    "eos_token_id": 2,
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
    "longcat_ngram": ("longcat_flash_ngram", _LITE),
    "longcat_ngram_biases": (
        "longcat_flash_ngram",
        {
            **_LITE,
            "num_layers": 1,
            "attention_bias": True,
            "emb_neighbor_num": 2,
            "emb_split_num": 3,
        },
    ),
}
