"""Decoders whose references are written after other programs' code (`own_decoders`): all fields are said."""

from typing import Any

_SIZES: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
_SMALLTHINKER: dict[str, Any] = {
    **_SIZES,
    "architectures": ["SmallThinkerForCausalLM"],
    "num_hidden_layers": 5,
    "head_dim": 24,
    "rope_layout": [0, 1, 1, 1, 0],
    "rope_theta": 1500000.0,
    "sliding_window_layout": [0, 1, 1, 1, 0],
    "sliding_window_size": 9,
    "moe_num_primary_experts": 8,
    "moe_ffn_hidden_size": 48,
    "moe_primary_router_apply_softmax": False,
    "moe_num_active_primary_experts": 3,
}
_GROVE: dict[str, Any] = {
    **_SIZES,
    "architectures": ["GroveMoeForCausalLM"],
    "intermediate_size": 96,
    "head_dim": 24,
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 32,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "tie_word_embeddings": False,
}
_ORION: dict[str, Any] = {
    **_SIZES,
    "architectures": ["OrionForCausalLM"],
    "intermediate_size": 96,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
_PLM: dict[str, Any] = {
    **_SIZES,
    "architectures": ["PLMForCausalLM"],
    "intermediate_size": 96,
    "num_key_value_heads": 4,
    "hidden_act": "relu2",
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "rope_theta": 100000.0,
}
_CODESHELL: dict[str, Any] = {
    "architectures": ["CodeShellForCausalLM"],
    "vocab_size": 160,
    "n_embd": 64,
    "n_head": 8,
    "n_layer": 3,
    "n_positions": 256,
    "n_inner": None,
    "num_query_groups": 2,
    "group_query_attention": True,
    "position_embedding_type": "rope",
    "activation_function": "gelu_pytorch_tanh",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "tie_word_embeddings": False,
}
_ARCTIC: dict[str, Any] = {
    **_SIZES,
    "architectures": ["ArcticForCausalLM"],
    "intermediate_size": 48,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "moe_layer_frequency": 1,
    "parallel_attn_mlp_res": True,
    "attention_bias": False,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "smallthinker": ("smallthinker", _SMALLTHINKER),
    "smallthinker_plain": (
        "smallthinker",
        {
            **_SMALLTHINKER,
            "num_hidden_layers": 2,
            "rope_layout": [1, 1],
            "sliding_window_layout": [0, 0],
            "moe_primary_router_apply_softmax": True,
            "tie_word_embeddings": False,
        },
    ),
    "grove_moe": ("grove_moe", _GROVE),
    "grove_moe_dense": (
        "grove_moe",
        {**_GROVE, "decoder_sparse_step": 2, "attention_bias": True, "tie_word_embeddings": True},
    ),
    "orion": ("orion", _ORION),
    "plm": ("plm", _PLM),
    "codeshell": ("codeshell", _CODESHELL),
    "codeshell_tied": (
        "codeshell",
        {
            **_CODESHELL,
            "n_layer": 2,
            "n_inner": 96,
            "n_head": 4,
            "num_query_groups": 4,
            "scale_attn_weights": False,
            "tie_word_embeddings": True,
        },
    ),
    "arctic": ("arctic", _ARCTIC),
    "arctic_dense": (
        "arctic",
        {
            **_ARCTIC,
            "moe_layer_frequency": 2,
            "num_experts_per_tok": 3,
            "parallel_attn_mlp_res": False,
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
    ),
}
