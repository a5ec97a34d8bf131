"""ModernBERT's decoder: windows and whole layers, the head's matrix, biases and a head of its own."""

from typing import Any

_SMALL: dict[str, Any] = {
    "num_hidden_layers": 4,
    "local_attention": 12,
    "num_key_value_heads": None,
    "cls_token_id": 1,
    "sep_token_id": 2,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "modernbert_decoder": ("modernbert-decoder", _SMALL),
    "modernbert_decoder_biases": (
        "modernbert-decoder",
        {
            **_SMALL,
            "num_hidden_layers": 3,
            "local_attention": 9,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "norm_bias": True,
            "attention_bias": True,
            "classifier_bias": True,
            "classifier_activation": "silu",
            "norm_eps": 1e-6,
            "hidden_activation": "gelu_pytorch_tanh",
            "tie_word_embeddings": False,
        },
    ),
}
