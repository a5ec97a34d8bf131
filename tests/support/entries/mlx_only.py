"""Families that mlx-lm alone has a class for: Klear, Lille, Gear and IQuest-Coder Loop."""

from typing import Any

_LLAMA: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
_KLEAR: dict[str, Any] = {
    **_LLAMA,
    "architectures": ["KlearMoeForCausalLM"],
    "attention_bias": True,
    "mlp_only_layers": [1],
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "n_shared_experts": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "klear": ("Klear", _KLEAR),
    "klear_plain": (
        "Klear",
        {
            **_KLEAR,
            "num_hidden_layers": 2,
            "attention_bias": False,
            "mlp_only_layers": [],
            "n_shared_experts": 1,
            "norm_topk_prob": False,
        },
    ),
    "lille": (
        "lille-130m",
        {
            "architectures": ["LilleForCausalLM"],
            "vocab_size": 160,
            "n_embd": 64,
            "n_layer": 3,
            "n_head": 4,
            "n_kv_heads": 2,
            "block_size": 256,
            "layer_norm_eps": 1e-5,
            "rope_theta": 1000.0,
            "tie_word_embeddings": True,
        },
    ),
    "gear": (
        "gear",
        {
            **_LLAMA,
            "architectures": ["GearForCausalLM"],
            "head_dim": 32,
            "num_hidden_layers": 4,
            "layer_types": ["conv_mixer", "sliding_attention", "conv_mixer", "full_attention"],
            "hidden_activation": "gelu_pytorch_tanh",
            "attention_bias": True,
            "query_pre_attn_scalar": 24.0,
            "sliding_window": 9,
            "conv_L_cache": 4,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 4.0},
            "tie_word_embeddings": True,
            "final_logit_softcapping": 20.0,
        },
    ),
    "gear_plain": (
        "gear",
        {
            **_LLAMA,
            "architectures": ["GearForCausalLM"],
            "head_dim": 16,
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "conv_mixer", "sliding_attention"],
            "hidden_activation": "silu",
            "query_pre_attn_scalar": None,
            "sliding_window": 12,
            "conv_L_cache": 3,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": None,
        },
    ),
    "iquest_loop": (
        "iquestloopcoder",
        {
            **_LLAMA,
            "architectures": ["IQuestLoopCoderForCausalLM"],
            "head_dim": 16,
            "rope_theta": 500000.0,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_scaling": None,
            "loop_num": 2,
            "loop_window_size": 9,
        },
    ),
}
