"""What config.json says of T5Gemma 2: a Gemma 3 that reads, in a wrapper's block, and one that writes."""

from collections.abc import Mapping
from typing import Any

from runtime.config.decoder import layer_count, read_shape, read_softcap, read_windows, two_ropes
from runtime.config.fields import Fields
from runtime.config.text import TEXT_BLOCKS
from runtime.errors import UnsupportedModel
from runtime.models.t5gemma_config import Config as Stacks
from runtime.models.t5gemma_config import StackConfig
from runtime.records import dataclass

_TEXT = TEXT_BLOCKS[0]


@dataclass(frozen=True, slots=True)
class Config(Stacks):
    image_end_id: int
    """The token with an embedding of its own."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("t5gemma2",))
    fields.only({"is_encoder_decoder": True, "tie_word_embeddings": True})
    outer = _block(raw, "encoder")
    encoder = _stack(_block(outer, _TEXT, "encoder."), f"encoder.{_TEXT}")
    decoder = _stack(_block(raw, "decoder"), "decoder")
    for name in ("vocab_size", "hidden_size"):
        if getattr(encoder, name) != getattr(decoder, name):
            raise UnsupportedModel(
                f"config.json: encoder.{_TEXT}.{name} is {getattr(encoder, name)} and decoder.{name} "
                f"{getattr(decoder, name)}; both stacks have one table of tokens"
            )
    own = Fields({name: value for name, value in outer.items() if name != _TEXT}, under="encoder")
    end = "eoi_token_id" if own.has("eoi_token_id") else "eoi_token_index"
    writing = Fields(raw["decoder"], under="decoder")
    if writing.has("is_causal") and not writing.flag("is_causal"):
        writing.refuse("is_causal", "true: tokens of the answer see what stands before them")
    first = writing.count("bos_token_id", 2, low=0, high=decoder.vocab_size - 1)
    return Config(
        encoder=encoder,
        decoder=decoder,
        tied=True,
        start_id=fields.count("decoder_start_token_id", first, low=0, high=decoder.vocab_size - 1),
        image_end_id=own.count(end, 256000, low=0),
    )


def _block(raw: Mapping[str, Any], name: str, above: str = "") -> Mapping[str, Any]:
    block = raw.get(name)
    if not isinstance(block, Mapping):
        raise UnsupportedModel(f"config.json: {above}{name} should be a block of fields, one for each stack")
    return block


def _stack(block: Mapping[str, Any], name: str) -> StackConfig:
    fields = Fields(block, under=name)
    if fields.has("attn_logit_softcapping"):
        fields.refuse("attn_logit_softcapping", "none: transformers does not compute it here")
    shape = read_shape(
        fields,
        activation_field="hidden_activation",
        activation="gelu_pytorch_tanh",
        tied=True,
        vocab_size=262208,
        hidden_size=2304,
        intermediate_size=9216,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=131072,
    )
    every = fields.count("sliding_window_pattern", 6)
    windows = read_windows(
        fields, layer_count(fields, 26), full_every=every, window=fields.count("sliding_window", 4096)
    )
    return StackConfig(
        **shape,
        windows=windows,
        ropes=two_ropes(fields, shape, windows, theta=1e6, local_theta=1e4),
        bias=fields.flag("attention_bias"),
        scale=fields.number("query_pre_attn_scalar", 256.0, low=1e-6) ** -0.5,
        score_softcap=None,
        logit_softcap=read_softcap(fields, "final_logit_softcapping", None),
    )
