"""Gemma 1, 2 and 3 (the text tower of the multimodal ones).

All scale the embedding by sqrt(hidden size), tie the head to it, have zero-centred RMSNorms and a GeGLU whose
"gelu" is the tanh form whatever Gemma 1's config calls it. Gemma 2 norms around both sublayers, caps scores
and logits, and alternates sliding and full attention; Gemma 3 drops the caps, norms queries and keys, and
gives sliding layers a rotation of their own. VaultGemma is a Gemma 2 without the norms behind its sublayers.
One that looks both ways is `gemma_encoder`'s.
"""

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import (
    DecoderConfig,
    layer_count,
    one_rope,
    read_shape,
    read_softcap,
    read_windows,
    two_ropes,
)
from runtime.config.fields import Fields
from runtime.config.text import text_block
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.attention.self_attention import HeadNormAttention, SelfAttention
from runtime.nn.norm import one_added
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm, Sandwich
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import text_tensors
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import (
    CausalLM,
    attention_layout,
    gated_mlp,
    head_norms,
    layer_ropes,
    rms_norms,
)

_BOTH_WAYS = "use_bidirectional_attention"
_TANH = "gelu_pytorch_tanh"
_GENERATIONS = {"gemma": 1, "gemma2": 2, "vaultgemma": 2, "gemma3": 3, "gemma3_text": 3}


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    """A softcap bends what it is for: cap * tanh(x / cap)."""

    generation: int
    """1, 2 or 3."""
    after: bool
    """There are norms behind the sublayers."""
    bias: bool
    """Of the attention's projections, that of its output too."""
    scale: float
    """Attention scores are multiplied by it."""
    score_softcap: float | None
    """Of attention scores; None: none."""
    logit_softcap: float | None
    """Of logits; None: none."""


def parse(raw: Mapping[str, Any]) -> Config:
    if Fields(raw).flag(_BOTH_WAYS):
        raise UnsupportedModel(
            f"config.json: {_BOTH_WAYS} is true; it is computed for Gemma 3's text model alone"
        )
    return parse_causal(raw)


def parse_causal(raw: Mapping[str, Any]) -> Config:
    """Whatever is said of which way tokens look."""
    fields = Fields(raw)
    family = fields.choice("model_type", tuple(_GENERATIONS), "gemma3_text")
    generation = _GENERATIONS[family]
    shape = _SHAPES[generation](fields)
    layers = layer_count(fields, 26 if generation == 3 else None)
    windows = _windows(fields, generation, layers)
    if (generation == 1 or text_block(raw)) and fields.has("final_logit_softcapping"):
        fields.refuse("final_logit_softcapping", "none: Gemma 1, and 3 with its vision tower, have no cap")
    scalar = fields.number("query_pre_attn_scalar", 256.0, low=1e-6) if generation > 1 else shape["head_dim"]
    return Config(
        **shape,
        windows=windows,
        ropes=two_ropes(fields, shape, windows, theta=1e6, local_theta=1e4)
        if generation == 3
        else (one_rope(fields, shape),) * layers,
        generation=generation,
        after=generation > 1 and family != "vaultgemma",
        bias=fields.flag("attention_bias"),
        scale=scalar**-0.5,
        score_softcap=read_softcap(fields, "attn_logit_softcapping", 50.0) if generation == 2 else None,
        logit_softcap=read_softcap(fields, "final_logit_softcapping", 30.0 if generation == 2 else None),
    )


def _shape1(fields: Fields) -> dict[str, Any]:
    name = "hidden_activation" if fields.has("hidden_activation") else "hidden_act"
    shape = read_shape(
        fields,
        activation_field=name,
        activation=_TANH,
        tied=True,
        head_dim=256,
        max_position_embeddings=8192,
    )
    return {**shape, "activation": _TANH} if shape["activation"] == "gelu" else shape


def _shape2(fields: Fields) -> dict[str, Any]:
    return read_shape(
        fields,
        activation_field="hidden_activation",
        activation=_TANH,
        tied=True,
        head_dim=256,
        max_position_embeddings=8192,
    )


def _shape3(fields: Fields) -> dict[str, Any]:
    if fields.has("attn_logit_softcapping"):
        raise UnsupportedModel("config.json: attn_logit_softcapping is set, which Gemma 3 does not compute")
    return read_shape(
        fields,
        activation_field="hidden_activation",
        activation=_TANH,
        tied=True,
        vocab_size=262208,
        hidden_size=2304,
        intermediate_size=9216,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=131072,
    )


_SHAPES = {1: _shape1, 2: _shape2, 3: _shape3}


def _windows(fields: Fields, generation: int, layers: int) -> tuple[int | None, ...]:
    if generation == 1:
        return (None,) * layers
    every = 2 if generation == 2 else fields.count("sliding_window_pattern", 6)
    return read_windows(fields, layers, full_every=every, window=fields.count("sliding_window", 4096))


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Gemma(CausalLM):
    def __init__(self, config: Config) -> None:
        wiring = Sandwich if config.after else PreNorm
        blocks = [
            wiring(_attention(config, rope), gated_mlp(config), rms_norms(config))
            for rope in layer_ropes(config)
        ]
        super().__init__(
            config,
            blocks,
            rms_norms(config)(),
            embed_scale=math.sqrt(config.hidden_size),
            logit_softcap=config.logit_softcap,
        )


def _attention(config: Config, rope: Rope | None) -> SelfAttention:
    """What a token sees is up to the layer's memory."""
    if config.generation < 3:
        return SelfAttention(
            config,
            rope,
            qkv_bias=config.bias,
            output_bias=config.bias,
            scale=config.scale,
            softcap=config.score_softcap,
        )
    return HeadNormAttention(
        config,
        rope,
        head_norms(config),
        qkv_bias=config.bias,
        output_bias=config.bias,
        scale=config.scale,
    )


def build(config: Config) -> Gemma:
    return Gemma(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    own = one_added(text_tensors(config, weights))
    if config.after:
        return own
    # VaultGemma's name for the norm before the MLP.
    return {
        name.replace(".pre_feedforward_layernorm.", ".post_attention_layernorm."): array
        for name, array in own.items()
    }


def _variant(raw: Mapping[str, Any]) -> str | None:
    """Gemma 3's text model by itself may look both ways."""
    fields = Fields(raw)
    if fields.raw.get("model_type", "gemma3_text") != "gemma3_text" or not fields.flag(_BOTH_WAYS):
        return None
    return None if text_block(raw) else "gemma_encoder"


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(towers=USUAL)),
    variant=_variant,
)
