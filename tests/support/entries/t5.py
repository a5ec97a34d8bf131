"""T5 v1.0 (relu, a tied and scaled head), v1.1 (gated, a head of its own in published files), mT5, and UMT5
with a bias in every layer. Distances go well past the last bucket.
"""

from typing import Any

_SMALL: dict[str, Any] = {
    "vocab_size": 160,
    "d_model": 64,
    "d_kv": 24,
    "d_ff": 96,
    "num_heads": 4,
    "num_layers": 3,
    "num_decoder_layers": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("t5", _SMALL),
    "t5_v1_1": (
        "t5",
        {
            **_SMALL,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
            "relative_attention_num_buckets": 32,
            "relative_attention_max_distance": 128,
        },
    ),
    "mt5": ("mt5", {**_SMALL, "feed_forward_proj": "gated-gelu"}),
    "umt5": ("umt5", {**_SMALL, "feed_forward_proj": "gated-gelu"}),
}
