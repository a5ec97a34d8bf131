"""What config.json says of T5Gemma: a block of Gemma 2's fields for each of its two stacks."""

from collections.abc import Mapping
from typing import Any

from runtime.config.decoder import (
    DecoderConfig,
    layer_count,
    one_rope,
    read_shape,
    read_softcap,
    read_windows,
)
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.records import dataclass

_TANH = "gelu_pytorch_tanh"


@dataclass(frozen=True, slots=True)
class StackConfig(DecoderConfig):
    bias: bool
    scale: float
    """Scores are multiplied by it."""
    score_softcap: float | None
    """Scores become cap * tanh(score / cap)."""
    logit_softcap: float | None
    """The same of logits; the decoder's alone counts."""


@dataclass(frozen=True, slots=True)
class Config:
    encoder: StackConfig
    decoder: StackConfig
    tied: bool
    """The output head is the embedding table."""
    start_id: int
    """What every answer begins with."""

    @property
    def vocab_size(self) -> int:
        return self.decoder.vocab_size

    @property
    def hidden_size(self) -> int:
        return self.decoder.hidden_size

    @property
    def context_length(self) -> int:
        """Tokens of a prompt, and of an answer."""
        return min(self.encoder.context_length, self.decoder.context_length)


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    encoder, decoder = (_stack(raw, name) for name in ("encoder", "decoder"))
    if encoder.vocab_size != decoder.vocab_size:
        raise UnsupportedModel(
            f"config.json: encoder.vocab_size is {encoder.vocab_size} and decoder.vocab_size "
            f"{decoder.vocab_size}; only one vocabulary for both is computed here"
        )
    own = Fields(raw["decoder"], under="decoder")
    if own.has("is_causal") and not own.flag("is_causal"):
        own.refuse("is_causal", "true: tokens of the answer see what stands before them")
    first = own.count("bos_token_id", 2, low=0, high=decoder.vocab_size - 1)
    return Config(
        encoder=encoder,
        decoder=decoder,
        tied=fields.flag("tie_word_embeddings", True),
        start_id=fields.count("decoder_start_token_id", first, low=0, high=decoder.vocab_size - 1),
    )


def _stack(raw: Mapping[str, Any], name: str) -> StackConfig:
    block = raw.get(name)
    if not isinstance(block, Mapping):
        raise UnsupportedModel(f"config.json: {name} should be a block of fields, one for each stack")
    fields = Fields(block, under=name)
    shape = read_shape(
        fields,
        activation_field="hidden_activation",
        activation=_TANH,
        tied=True,
        vocab_size=256000,
        hidden_size=2304,
        intermediate_size=9216,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=8192,
    )
    layers = layer_count(fields, 26)
    windows = read_windows(fields, layers, full_every=2, window=fields.count("sliding_window", 4096))
    return StackConfig(
        **shape,
        windows=windows,
        ropes=(one_rope(fields, shape),) * layers,
        bias=fields.flag("attention_bias"),
        scale=fields.number("query_pre_attn_scalar", 256.0, low=1e-6) ** -0.5,
        score_softcap=read_softcap(fields, "attn_logit_softcapping", 50.0),
        logit_softcap=read_softcap(fields, "final_logit_softcapping", 30.0),
    )
