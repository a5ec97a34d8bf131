"""MPT: ALiBi, LayerNorms of weights alone, no biases at all.

transformers' class looks at few of the fields that MosaicML's own code reads; what it would compute otherwise
is refused, but for the steepness of ALiBi (`alibi_bias_max`, 16 in StoryWriter) and the width of MLPs, which
are as that code has them.

Source: transformers modeling_mpt.py; mosaicml/llm-foundry.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_older_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.activation import gelu
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.attention.self_attention import HeadShape, Projected, clipped
from runtime.nn.feed_forward.mlp import MLP
from runtime.nn.norm import LayerNorm, Normalize
from runtime.nn.positions.alibi import Alibi, slopes
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    scale: float
    """Of attention scores."""
    bias_max: float
    """ALiBi's least slope is 2 to the power of minus this."""
    clip: float | None
    """Queries, keys and values are no farther from 0."""


# Fields of attn_config with the values that are computed, which are what a file means that leaves them out.
_ATTENTION: dict[str, tuple[Any, ...]] = {
    "attn_type": ("multihead_attention",),
    "alibi": (True,),
    "prefix_lm": (False,),
    "qk_ln": (False,),
    "qk_gn": (False,),
    "rope": (False,),
    "sliding_window_size": (-1,),
    "attn_uses_sequence_id": (False, True),
}
_NORMS = ("low_precision_layernorm", "layernorm")


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_older_shape(fields, length="max_seq_len", tied=True)
    attention = _attention(fields)
    clip = attention.raw.get("clip_qkv")
    layers = layer_count(fields, 24)
    if not fields.flag("no_bias", True):
        fields.refuse("no_bias", "true: no biases are computed")
    if fields.raw.get("logit_scale") is not None:
        fields.refuse("logit_scale", "null: transformers does not scale logits")
    fields.choice("norm_type", _NORMS, _NORMS[0])
    return Config(
        **{**shape, "intermediate_size": fields.count("expansion_ratio", 4) * shape["hidden_size"]},
        windows=(None,) * layers,
        ropes=(None,) * layers,
        scale=attention.number("softmax_scale", shape["head_dim"] ** -0.5),
        bias_max=attention.number("alibi_bias_max", 8.0, low=1e-3, high=1e3),
        clip=None if not clip else attention.number("clip_qkv", low=1e-6),
    )


def _attention(fields: Fields) -> Fields:
    own = fields.block("attn_config")
    for name, good in _ATTENTION.items():
        if own.raw.get(name, good[0]) not in good:
            own.refuse(name, f"{good[0]!r}, the one way that is computed")
    return own


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Clipped(FusedAttention):
    """What products give is kept within [-clip, clip]."""

    def __init__(
        self,
        shape: HeadShape,
        rope: Rope | None,
        clip: float,
        *,
        alibi: Alibi | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__(shape, rope, alibi=alibi, scale=scale)
        self._clip = clip

    def flat(self, x: mx.array, step: Step) -> Projected:
        return clipped(super().flat(x, step), self._clip)


def build(config: Config) -> CausalLM:
    def norm() -> Normalize:
        return LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)

    hidden, clip, scale = config.hidden_size, config.clip, config.scale
    biases = Alibi(slopes(config.heads, config.bias_max))

    def attention() -> FusedAttention:
        if clip is None:
            return FusedAttention(config, None, alibi=biases, scale=scale)
        return Clipped(config, None, clip, alibi=biases, scale=scale)

    layers = [PreNorm(attention(), MLP(hidden, config.intermediate_size, gelu), norm) for _ in config.windows]
    return CausalLM(config, layers, norm())


_NAMES = (
    ("transformer.blocks.", "model.layers."),
    ("transformer.wte.", "model.embed_tokens."),
    ("transformer.norm_f.", "model.norm."),
    (".norm_1.", ".input_layernorm."),
    (".norm_2.", ".post_attention_layernorm."),
    (".attn.Wqkv.", ".self_attn.qkv_proj."),
    (".attn.out_proj.", ".self_attn.o_proj."),
    (".ffn.", ".mlp."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(without_spares(config, weights), _NAMES, trunk="transformer.")


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
