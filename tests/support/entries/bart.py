"""BART: stacks of unlike sizes; scaled embeddings, one layer each. Its kin: positions that no file has
(M2M100, Marian), waves that one has (Pegasus), tables (mBART, Blenderbot)."""

from typing import Any

_BART: dict[str, Any] = {
    "vocab_size": 160,
    "d_model": 64,
    "encoder_layers": 3,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_layers": 4,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": 128,
    "activation_function": "gelu",
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}

_KIN: dict[str, Any] = {**_BART, "encoder_layers": 2, "decoder_layers": 4}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("bart", _BART),
    "bart_scaled": (
        "bart",
        {
            **_BART,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_layers": 1,
            "decoder_attention_heads": 8,
            "activation_function": "relu",
            "scale_embedding": True,
        },
    ),
    "mbart": ("mbart", _KIN),
    "m2m_100": ("m2m_100", {**_KIN, "activation_function": "relu"}),
    "marian": (
        "marian",
        {**_KIN, "activation_function": "swish", "decoder_vocab_size": 160, "scale_embedding": True},
    ),
    "pegasus": ("pegasus", {**_KIN, "activation_function": "relu", "scale_embedding": True}),
    "blenderbot": ("blenderbot", {**_KIN, "decoder_start_token_id": 1}),
    "blenderbot_small": (
        "blenderbot-small",
        {**_KIN, "encoder_attention_heads": 2, "decoder_layers": 2, "scale_embedding": True},
    ),
}
