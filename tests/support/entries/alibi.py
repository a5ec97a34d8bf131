"""BLOOM and MPT, of head counts that are a power of two and that are not."""

from typing import Any

_SIX: dict[str, Any] = {"hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 3}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bloom": ("bloom", {"num_hidden_layers": 3}),
    "bloom_six": ("bloom", {**_SIX, "layer_norm_epsilon": 1e-3, "tie_word_embeddings": False}),
    "mpt": ("mpt", {"num_hidden_layers": 3, "max_seq_len": 96}),
    "mpt_clipped": (
        "mpt",
        {
            **_SIX,
            "max_seq_len": 96,
            "attn_config": {"clip_qkv": 0.4, "alibi_bias_max": 16, "softmax_scale": 0.5},
        },
    ),
}
