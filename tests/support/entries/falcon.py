"""Falcon: 7B, 40B and 11B, and RW with ALiBi; of head counts that are a power of two and that are not."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon_7b": ("falcon", {"num_hidden_layers": 3, "ffn_hidden_size": None}),
    "falcon_11b": (
        "falcon",
        {
            "num_hidden_layers": 3,
            "ffn_hidden_size": 96,
            "new_decoder_architecture": True,
            "num_ln_in_parallel_attn": 1,
            "num_kv_heads": 4,
            "tie_word_embeddings": False,
        },
    ),
    "falcon_40b": (
        "falcon",
        {
            "num_hidden_layers": 3,
            "ffn_hidden_size": 96,
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "bias": True,
        },
    ),
    "falcon_rw": (
        "falcon",
        {
            "num_hidden_layers": 3,
            "hidden_size": 96,
            "num_attention_heads": 6,
            "ffn_hidden_size": 128,
            "alibi": True,
            "bias": True,
            "multi_query": False,
            "parallel_attn": False,
            "activation": "gelu_new",
        },
    ),
    "falcon_rw_parallel": (
        "falcon",
        {"num_hidden_layers": 2, "ffn_hidden_size": 96, "alibi": True, "new_decoder_architecture": False},
    ),
}
