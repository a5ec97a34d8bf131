"""Chameleon: a Llama whose query and key heads have LayerNorms of their own, of text and images alike.

The larger one norms what sublayers add, not what they read. Images are tokens, too, and a model that may draw
them would write half an image into a text: their ids are never drawn, as in transformers' class. What makes
tokens of images is left out.

Source: arXiv 2405.09818; transformers modeling_chameleon.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.layer import Layer
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PostNorm, PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import respelled, without_spares
from runtime.tensors.towers import Towers
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms
from runtime.trunks.pruned import NEVER

_HEAD_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    attention_bias: bool
    mlp_bias: bool
    norms_answers: bool
    """Sublayers read the stream as it is, and what they add is normed."""
    undrawn: tuple[int, ...]
    """Ids of parts of images."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(
        fields,
        eps=1e-5,
        vocab_size=65536,
        hidden_size=4096,
        intermediate_size=11008,
        num_attention_heads=32,
        num_key_value_heads=32,
        max_position_embeddings=4096,
    )
    if shape["heads"] * shape["head_dim"] != shape["hidden_size"]:
        fields.refuse("hidden_size", f"{shape['heads']} heads of {shape['head_dim']}, side by side")
    layers = layer_count(fields, 32)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        norms_answers=fields.flag("swin_norm"),
        undrawn=_of_images(fields, shape["vocab_size"]),
    )


def _of_images(fields: Fields, vocab_size: int) -> tuple[int, ...]:
    """By the vocabulary, which config.json repeats: the names of these begin with IMGIMG."""
    words = fields.raw.get("vocabulary_map")
    if not isinstance(words, Mapping):
        fields.refuse("vocabulary_map", "ids by tokens: some of them are parts of images")
    ids = [number for word, number in words.items() if word.startswith("IMGIMG")]
    if any(type(number) is not int or not 0 <= number < vocab_size for number in ids):
        fields.refuse("vocabulary_map", f"ids below {vocab_size:,}")
    return tuple(sorted(ids))


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class HeadNorm(Module):
    """LayerNorm of each head with that head's own weight and bias [heads, D]; x is [B, heads, L, D]. Kernels
    have none with such a bias, so it is no HeadLayerNorm to them.
    """

    centred: ClassVar[bool] = True

    def __init__(self, heads: int, dims: int) -> None:
        super().__init__()
        self.weight, self.bias = mx.ones((heads, dims)), mx.zeros((heads, dims))

    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.standardize(x, _HEAD_EPS) * self.weight[:, None] + self.bias[:, None]


class Chameleon(CausalLM):
    def __init__(self, config: Config, layers: Sequence[Layer]) -> None:
        super().__init__(config, layers, rms_norms(config)())
        undrawn = set(config.undrawn)
        self._undrawn = mx.array([number in undrawn for number in range(config.vocab_size)])

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        known = super().logits(hidden, step)
        return mx.where(self._undrawn, mx.array(NEVER, known.dtype), known)


def build(config: Config) -> Chameleon:
    norm = rms_norms(config)
    block = PostNorm if config.norms_answers else PreNorm
    ropes = layer_ropes(config)
    layers = [
        block(_attention(config, rope), gated_mlp(config, bias=config.mlp_bias), norm) for rope in ropes
    ]
    return Chameleon(config, layers)


def _attention(config: Config, rope: Rope | None) -> HeadNormAttention:
    def norm(heads: int) -> Normalize:
        return HeadNorm(heads, config.head_dim)

    bias = config.attention_bias
    return HeadNormAttention(config, rope, norm, qkv_bias=bias, output_bias=bias)


# Norms behind sublayers have other names here than in the files.
_NAMES = (
    (".post_attention_layernorm.", ".post_feedforward_layernorm."),
    (".input_layernorm.", ".post_attention_layernorm."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    named = without_spares(config, weights)
    return respelled(named, _NAMES, trunk="model.") if config.norms_answers else named


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(towers=Towers(images=("vqmodel.",)))),
)
