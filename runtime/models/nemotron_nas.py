"""Nemotron NAS (DeciLM; Llama-Nemotron 51B, Super 49B, Ultra 253B): a Llama from which a search has taken
what could be spared.

Layers differ in their number of key heads and in the size of their MLP; in place of either there may be one
matrix, or nothing (arXiv 2411.19146). In DeciLM 7B, which came before, only the number of key heads differs.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Stateless
from runtime.cache.protocol import StepCache
from runtime.config.decoder import DecoderConfig, key_heads, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import Block, NormedSublayer
from runtime.nn.residual.sublayer import added
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, gated_mlp, layer_ropes, rms_norms

MATRIX = 0
"""In place of a size: one matrix stands there."""


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    key_heads: tuple[int | None, ...]
    """Of each layer; MATRIX; None: there is nothing in place of attention."""
    inner: tuple[int | None, ...]
    """The same of MLPs' sizes."""
    attention_bias: bool
    mlp_bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    first = fields.choice("model_type", ("nemotron-nas", "deci")) == "deci"
    layers = layer_count(fields)
    counts, inner = _first_sizes(fields, layers) if first else _searched_sizes(fields, layers)
    most = {"num_key_value_heads": max(filter(None, counts), default=1)}
    most |= {"intermediate_size": max(filter(None, inner), default=1)}
    shape = read_shape(Fields({**fields.raw, **most}))
    rope = one_rope(fields, shape)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=tuple(rope if count else None for count in counts),
        key_heads=counts,
        inner=inner,
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
    )


Sizes = tuple[int | None, ...]


def _blocks(fields: Fields, name: str, layers: int) -> list[Any]:
    blocks = fields.raw.get(name)
    if not isinstance(blocks, list) or len(blocks) != layers:
        what = "a block" if name == "block_configs" else "a number"
        fields.refuse(name, f"{what} for each of {layers} layers")
    return blocks


def _first_sizes(fields: Fields, layers: int) -> tuple[Sizes, Sizes]:
    """Key heads, and sizes of MLPs, which are all the same."""
    name, heads = "num_key_value_heads_per_layer", fields.count("num_attention_heads", high=4096)
    fields.only({"attention_bias": False, "mlp_bias": False})
    blocks = [Fields({name: count}) for count in _blocks(fields, name, layers)]
    inner = fields.count("intermediate_size", high=1 << 22)
    return tuple(key_heads(block, heads, name=name) for block in blocks), (inner,) * layers


def _searched_sizes(fields: Fields, layers: int) -> tuple[Sizes, Sizes]:
    hidden = fields.count("hidden_size", high=1 << 20)
    heads = fields.count("num_attention_heads", high=4096)
    blocks = _blocks(fields, "block_configs", layers)
    counts = tuple(_key_heads(_part(blocks, i, "attention"), heads) for i in range(layers))
    return counts, tuple(_inner(_part(blocks, i, "ffn"), hidden) for i in range(layers))


def _part(blocks: list[Any], place: int, name: str) -> Fields:
    """Of a layer's block. What it may say besides its size (windows, sinks) no published model has."""
    whole, under = blocks[place], f"block_configs[{place}]"
    part = whole.get(name) if isinstance(whole, Mapping) else None
    if not isinstance(part, Mapping):
        Fields({name: part}, under=under).refuse(name, "an object")
    fields = Fields(part, under=f"{under}.{name}")
    if fields.flag("no_op") or fields.flag("replace_with_linear"):
        return fields
    for other in sorted(part.keys() - {"n_heads_in_group", "ffn_mult", "sparsify"}):
        if part[other] not in (None, False):
            fields.refuse(other, "none: this is not computed here")
    return fields


def _size(fields: Fields) -> int | None:
    return None if fields.flag("no_op") else MATRIX


def _key_heads(fields: Fields, heads: int) -> int | None:
    if fields.flag("no_op") or fields.flag("replace_with_linear"):
        return _size(fields)
    share = fields.count("n_heads_in_group", high=heads)
    if heads % share:
        fields.refuse("n_heads_in_group", f"a divisor of num_attention_heads, {heads}")
    return heads // share


def _inner(fields: Fields, hidden: int) -> int | None:
    """Two thirds of so many times the hidden size, in whole 256s."""
    if fields.flag("no_op") or fields.flag("replace_with_linear"):
        return _size(fields)
    inner = int(2 * fields.number("ffn_mult", low=1e-6, high=1024.0) * hidden / 3)
    return max(-(-inner // 256) * 256, 256)


def layout(config: Config) -> list[LayerSpec]:
    return [Full(count, config.head_dim) if count else Stateless() for count in config.key_heads]


class Matrix(Module):
    """In place of a sublayer: each token through one matrix."""

    def __init__(self, size: int, *, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size, bias=bias)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return linear(self.linear, x, step)


class Searched(Block):
    """Those of two sublayers that are left, each reading a normed stream."""

    def __init__(self, config: Config, place: int, rope: Rope | None) -> None:
        super().__init__()
        norm, hidden = rms_norms(config), config.hidden_size
        key_heads, inner, bias = config.key_heads[place], config.inner[place], config.attention_bias
        if key_heads is not None:
            self.input_layernorm = norm()
            shape = replace(config, kv_heads=key_heads or 1)
            self.self_attn = (
                SelfAttention(shape, rope, qkv_bias=bias, output_bias=bias)
                if key_heads
                else Matrix(hidden, bias=bias)
            )
        if inner is not None:
            self.post_attention_layernorm = norm()
            bias = config.mlp_bias
            self.mlp = gated_mlp(config, bias=bias, inner=inner) if inner else Matrix(hidden, bias=bias)

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        for sublayer, norm, _ in self.sublayers():
            memory = (cache,) if isinstance(sublayer, SelfAttention) else ()
            x = added(x, sublayer, step, *memory, norm=norm)
        return x

    def sublayers(self) -> tuple[NormedSublayer, ...]:
        names = ("self_attn", "input_layernorm"), ("mlp", "post_attention_layernorm")
        return tuple((self[own], self[norm], None) for own, norm in names if own in self)


def build(config: Config) -> CausalLM:
    layers = [Searched(config, place, rope) for place, rope in enumerate(layer_ropes(config))]
    return CausalLM(config, layers, rms_norms(config)())


_NAMES = ((".self_attn.linear_attn.", ".self_attn.linear."), (".mlp.linear_mlp.", ".mlp.linear."))


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(without_spares(config, weights), _NAMES)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(renamed=_NAMES)),
)
