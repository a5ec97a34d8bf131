"""What config.json says of T5, mT5 and UMT5.

Their classes read the same fields with other defaults, and differ in three facts: who scales hidden states
before the head, whose layers have biases of their own, and what answers begin with where a file does not say.
"""

from collections.abc import Mapping
from typing import Any

from runtime.config.fields import Fields
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.records import dataclass

_KINDS = ("t5", "mt5", "umt5")
# Positions are distances, which have no end: this bounds memory that is foreseen, and nobody's texts.
_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    heads: int
    head_dim: int
    intermediate_size: int
    encoder_layers: int
    decoder_layers: int
    buckets: int
    """Of distances; each has a bias per head."""
    max_distance: int
    """Tokens; all distances beyond it share a bucket."""
    norm_eps: float
    activation: str
    gated: bool
    """A second projection gates the feed-forward block."""
    own_bias: bool
    """Each layer has a bias of its own; else the first layer's serves all of its stack."""
    tied: bool
    """The output head is the embedding table."""
    scaled: bool
    """Hidden states are divided by the root of their size before the head."""
    start_id: int
    """What every answer begins with."""
    context_length: int
    """Tokens of a prompt, and of an answer."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    kind = fields.choice("model_type", _KINDS, "t5")
    layers = fields.count("num_layers", 6 if kind == "t5" else 8, high=4096)
    heads = fields.count("num_heads", 8 if kind == "t5" else 6, high=4096)
    activation, gated = _feed_forward(fields, "relu" if kind == "t5" else "gated-gelu")
    buckets = fields.count("relative_attention_num_buckets", 32, low=4, high=1 << 16)
    vocab = fields.count("vocab_size", 32128 if kind == "t5" else 250112, high=1 << 24)
    padding = fields.count("pad_token_id", 0, low=0, high=vocab - 1) if kind == "t5" else 0
    tied = not fields.has("tie_word_embeddings") or fields.flag("tie_word_embeddings")
    return Config(
        vocab_size=vocab,
        hidden_size=fields.count("d_model", 512, high=1 << 20),
        heads=heads,
        head_dim=fields.count("d_kv", 64, high=4096),
        intermediate_size=fields.count("d_ff", 2048 if kind == "t5" else 1024, high=1 << 22),
        encoder_layers=layers,
        decoder_layers=fields.count("num_decoder_layers", layers, high=4096),
        buckets=buckets,
        max_distance=fields.count("relative_attention_max_distance", 128, low=buckets // 2 + 1, high=1 << 20),
        norm_eps=fields.number("layer_norm_epsilon", 1e-6, low=1e-30),
        activation=activation,
        gated=gated,
        own_bias=kind == "umt5",
        tied=tied,
        scaled=_scaled(fields, kind, tied),
        start_id=fields.count("decoder_start_token_id", padding, low=0, high=vocab - 1),
        context_length=max(fields.count("n_positions", 512), _CONTEXT),
    )


def _feed_forward(fields: Fields, default: str) -> tuple[str, bool]:
    """Activation and whether a second projection gates it: "relu", "gated-gelu". Newer files also say each
    of the two by itself, and that is what counts.
    """
    words = {start + activation: activation for start in ("", "gated-") for activation in ACTIVATIONS}
    word = fields.choice("feed_forward_proj", tuple(words), default)
    activation = "gelu_new" if word == "gated-gelu" else words[word]
    return (
        fields.choice("dense_act_fn", tuple(ACTIVATIONS), activation),
        word.startswith("gated-") if not fields.has("is_gated_act") else fields.flag("is_gated_act"),
    )


def _scaled(fields: Fields, kind: str, tied: bool) -> bool:
    """T5 and UMT5 say it by the head that they tie, whatever head the file has; newer files say it."""
    return kind != "mt5" and fields.flag("scale_decoder_outputs", tied)
