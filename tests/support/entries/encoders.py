"""Encoders for embeddings, which have hidden states in place of logits (tests/data/encoders)."""

from typing import Any

_SMALL: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 66,
}

_SMALL_T5: dict[str, Any] = {
    "vocab_size": 160,
    "d_model": 64,
    "d_kv": 24,
    "d_ff": 96,
    "num_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
}
ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {**_SMALL, "layer_norm_eps": 1e-12}),
    "bert_tanh": ("bert", {**_SMALL, "hidden_act": "gelu_new", "type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "roberta": ("roberta", {**_SMALL, "type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "xlm_roberta": ("xlm-roberta", {**_SMALL, "pad_token_id": 11, "layer_norm_eps": 1e-5}),
    "camembert": ("camembert", {**_SMALL, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 3}),
    "mpnet": ("mpnet", {**_SMALL, "layer_norm_eps": 1e-5}),
    "distilbert": (
        "distilbert",
        {
            "vocab_size": 160,
            "dim": 64,
            "hidden_dim": 96,
            "n_layers": 3,
            "n_heads": 4,
            "max_position_embeddings": 64,
        },
    ),
    "nomic_bert": (
        "nomic_bert",
        {**_SMALL, "head_dim": 24, "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
    ),
    "gte": (
        "gte",
        {**_SMALL, "type_vocab_size": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
    ),
    "gte_untyped": (
        "gte",
        {
            **_SMALL,
            "type_vocab_size": 0,
            "hidden_act": "gelu_new",
            "layer_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 700.0, "factor": 3.0},
        },
    ),
    "jina_embeddings_v3": (
        "jina_embeddings_v3",
        {**_SMALL, "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
    ),
    "modernbert": (
        "modernbert",
        {
            **_SMALL,
            "num_hidden_layers": 4,
            "local_attention": 12,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
        },
    ),
    "modernbert_biases": (
        "modernbert",
        {
            **_SMALL,
            "local_attention": 9,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "norm_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "norm_eps": 1e-6,
            "hidden_activation": "gelu_pytorch_tanh",
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
        },
    ),
    "eurobert": (
        "eurobert",
        {
            **_SMALL,
            "num_key_value_heads": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 2,
            "mask_token_id": 3,
        },
    ),
    "llama_both_ways": ("llama", {**_SMALL, "num_key_value_heads": 2, "is_causal": False}),
    "qwen2_both_ways": ("qwen2", {**_SMALL, "num_key_value_heads": 2, "is_causal": False}),
    "qwen3_both_ways": (
        "qwen3",
        {**_SMALL, "num_key_value_heads": 2, "head_dim": 24, "is_causal": False, "tie_word_embeddings": True},
    ),
    "t5_encoder": ("t5", {**_SMALL_T5, "architectures": ["T5EncoderModel"]}),
    "umt5_encoder": (
        "umt5",
        {**_SMALL_T5, "feed_forward_proj": "gated-gelu", "architectures": ["UMT5EncoderModel"]},
    ),
    "embedding_gemma": (
        "gemma3_text",
        {
            **_SMALL,
            "num_hidden_layers": 4,
            "num_key_value_heads": 2,
            "head_dim": 24,
            "query_pre_attn_scalar": 20,
            "max_position_embeddings": 66,
            "sliding_window": 12,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            "use_bidirectional_attention": True,
        },
    ),
}
