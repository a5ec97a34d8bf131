"""The forward pass of a decoder-only model, and the parts that families make their layers of.

    step: ids [B, L] of rows, with their places
      -> embed_tokens, times a scale                          Trunk.embed             x [B, L, D]
      -> for each layer, with its own memory                  Trunk.__call__
           x = x + self_attn(input_layernorm(x))              nn.residual.block.PreNorm
                q, k, v -> heads, turned by position          nn.attention.self_attention, nn.positions.rope
                cache.append: keys and values of now -> all   runtime.cache
                softmax(q k * scale + mask) v -> o_proj       nn.attention.attend
           x = x + mlp(post_attention_layernorm(x))           nn.feed_forward.mlp, nn.feed_forward.moe
      -> norm                                                 what a Network returns  [B, L, D]
      -> lm_head, or embed_tokens again where tied            Headed.logits           [B, L, V]

B rows, L tokens of each in this step, D hidden size, V vocabulary. Hidden states and logits are apart because
logits are asked for at few positions, in a prompt at the last. A family says which layers there are; most are
`PreNorm` as drawn, others bring a block of their own that is called the same way, layer(x, step, cache).
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Rotating
from runtime.cache.protocol import Caches, Rotate, by_layout
from runtime.config.decoder import DecoderConfig
from runtime.nn.attention.self_attention import HeadNormAttention, SelfAttention
from runtime.nn.feed_forward.mlp import ACTIVATIONS, MLP, GatedMLP
from runtime.nn.layer import Layer
from runtime.nn.linear import embed
from runtime.nn.norm import LayerNorm, Norm, Normalize, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.parts.decoder import DecoderParts
from runtime.step import Step
from runtime.trunks.headed import Headed, untied_head
from runtime.trunks.taps import Taps


def attention_layout(config: DecoderConfig) -> list[LayerSpec]:
    return [
        Full(config.kv_heads, config.head_dim)
        if window is None
        else Rotating(config.kv_heads, config.head_dim, window)
        for window in config.windows
    ]


def layer_ropes(config: DecoderConfig) -> list[Rope | None]:
    """One Rope for each layer; layers that turn alike share it."""
    made = {spec: Rope(spec) for spec in set(config.ropes) if spec is not None}
    return [None if spec is None else made[spec] for spec in config.ropes]


def rms_norms(config: DecoderConfig) -> Norm:
    """Makes the norms of the residual stream."""
    return lambda: RMSNorm(config.hidden_size, eps=config.norm_eps)


def head_norms(config: DecoderConfig) -> Callable[[int], Normalize]:
    """Makes norms that all heads share."""
    return lambda _heads: RMSNorm(config.head_dim, eps=config.norm_eps)


def layer_norms(config: DecoderConfig) -> Norm:
    """The same of families that have LayerNorms."""
    return lambda: LayerNorm(config.hidden_size, eps=config.norm_eps)


def self_attention(
    config: DecoderConfig,
    rope: Rope | None,
    *,
    head_norm: bool,
    qkv_bias: bool = False,
    output_bias: bool = False,
) -> SelfAttention:
    """head_norm: with norms on queries and keys that all heads share."""
    if not head_norm:
        return SelfAttention(config, rope, qkv_bias=qkv_bias, output_bias=output_bias)
    return HeadNormAttention(config, rope, head_norms(config), qkv_bias=qkv_bias, output_bias=output_bias)


def gated_mlp(config: DecoderConfig, *, bias: bool = False, inner: int | None = None) -> GatedMLP:
    """inner: where it is not the config's intermediate size."""
    inner = config.intermediate_size if inner is None else inner
    return GatedMLP(config.hidden_size, inner, activation=config.activation, bias=bias)


def plain_mlp(config: DecoderConfig, *, bias: bool = False) -> MLP:
    """Without a gate."""
    return MLP(config.hidden_size, config.intermediate_size, ACTIVATIONS[config.activation], bias=bias)


class Trunk(Taps):
    """Everything below the output head."""

    in_turn: ClassVar[str] = "layers"
    """The list of its layers, each of which is given what the one before made of the stream: they may be on
    several machines (`runtime.ranks`). So in trunks of other families; those whose layers are given more say
    which modules make it (`for_layers`)."""

    def __init__(
        self, config: DecoderConfig, layers: Sequence[Layer], norm: Normalize, embed_scale: float | None
    ) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers: list[Layer] = list(layers)
        self.norm: Normalize = norm
        self.embed_scale = embed_scale
        self._turned = any(rope is not None for rope in config.ropes)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        if not self._turned:
            step.refuse_positions("no layer of this network goes by positions")
        x, last = self.entering(step), len(self.layers) - 1
        if self._wanted:
            for place, (layer, cache) in enumerate(zip(self.layers, by_layout(caches), strict=True)):
                x = layer(x, step, cache)
                if place in self._wanted and place != last:
                    self.note(place, x, step)
        else:
            x = ops.table.layers(self.layers, x, step, by_layout(caches))
        x = self.leaving(x, step)
        if last in self._wanted:
            self.note(last, x, step)
        return x

    def entering(self, step: Step) -> mx.array:
        """What enters the first layer, [B, L, D], of what the step brings."""
        return step.embedded(self.embed)

    def leaving(self, x: mx.array, step: Step) -> mx.array:
        """What the trunk gives of what leaves the last layer."""
        return self.norm(x)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        """What ids become there, [B, L, D]."""
        x = embed(self.embed_tokens, ids, step)
        return x if self.embed_scale is None else x * self.embed_scale


class CausalLM(Headed):
    """A Network of `layers` called as layer(x, step, cache). What the head gives is multiplied by
    `logit_scale` and bent by `logit_softcap` where these are there. Families may override `logits`.
    """

    def __init__(
        self,
        config: DecoderConfig,
        layers: Sequence[Layer],
        norm: Normalize,
        *,
        embed_scale: float | None = None,
        head_bias: bool = False,
        logit_scale: float = 1.0,
        logit_softcap: float | None = None,
        trunk: type[Trunk] = Trunk,
    ) -> None:
        head = untied_head(config, bias=head_bias)
        super().__init__(trunk(config, layers, norm, embed_scale), head, scale=logit_scale, cap=logit_softcap)

    @property
    def shifts(self) -> list[Rotate | None]:
        return [getattr(getattr(layer, "self_attn", None), "shift", None) for layer in self.trunk.layers]

    def decoder_parts(self) -> DecoderParts | None:
        """From ids to logits, where it is no more than what this class makes of it."""
        plain = type(self).logits is Headed.logits and type(self).__call__ is Headed.__call__
        if not plain or type(self.trunk) is not Trunk or self.trunk.is_tapped:
            return None
        return self.decodes(embed_scale=self.trunk.embed_scale)
