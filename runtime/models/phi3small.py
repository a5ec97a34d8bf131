"""Phi-3-small: LayerNorms and biases, muP's multipliers, and attention that in most layers sees only some
blocks of the past.

Its MLP takes gate and up in turn from one matrix, clips both, and gates by a quick GELU.

Sources: arXiv 2404.14219; the authors' modeling_phi3_small.py.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import Rotate
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.block_sparse import BlockSparse
from runtime.nn.attention.fused_attention import GroupedAttention
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_norms, layer_ropes


@dataclass(frozen=True, slots=True)
class Blocks:
    size: int
    local: int
    stride: int
    kept: tuple[int, ...]
    """See `block_sparse.BlockSparse`."""


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    sparse: tuple[bool, ...]
    """Of each layer: does it see blocks alone?"""
    blocks: Blocks
    attention_scale: float
    """Scores are multiplied by it."""
    stretch: tuple[float, float] | None
    """By these, too, in short and in long sequences (LongRoPE)."""
    limit: float
    """Gates and what they gate are clipped there."""
    embed_scale: float
    logit_scale: float


_SHAPE: dict[str, Any] = {
    "vocab_size": 100352,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("phi3small",))
    base = fields.number("rope_embedding_base", 1e6, low=2.0)
    meant = {**fields.raw, "intermediate_size": _inner(fields), "rope_theta": base}
    own = Fields({name: value for name, value in meant.items() if name != "head_dim"})
    words: dict[str, Any] = {"activation": "gegelu", "activations": ("gegelu",)}
    shape = read_shape(own, eps_field="layer_norm_epsilon", eps=1e-5, tied=True, **words, **_SHAPE)
    layers, size = layer_count(fields, 32), shape["head_dim"]
    rope, stretch = _rope(own, shape)
    every = fields.raw.get("dense_attention_every_n_layers", 2)
    every = fields.count("dense_attention_every_n_layers", 2) if every else layers + 1
    multiplier = fields.number("mup_attn_multiplier", 1.0)
    if fields.raw.get("gegelu_limit", 20.0) is None:
        fields.refuse("gegelu_limit", "a number: nothing is left unclipped here")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        sparse=tuple((i + 1) % every != 0 for i in range(layers)),
        blocks=_blocks(fields, shape["heads"]),
        attention_scale=multiplier / size if fields.flag("mup_use_scaling", True) else size**-0.5,
        stretch=stretch,
        limit=fields.number("gegelu_limit", 20.0, low=1e-6),
        embed_scale=_multiplier(fields, "mup_embedding_multiplier", 10.0),
        logit_scale=1 / _multiplier(fields, "mup_width_multiplier", 8.0),
    )


def _inner(fields: Fields) -> int:
    """Either `ff_intermediate_size`, or so many times two thirds of the hidden size, in whole 256s."""
    if fields.raw.get("ff_intermediate_size", 0) is not None:
        if fields.has("ff_dim_multiplier"):
            fields.refuse("ff_dim_multiplier", "null beside ff_intermediate_size")
        return fields.count("ff_intermediate_size", 14336, high=1 << 22)
    hidden = fields.count("hidden_size", _SHAPE["hidden_size"], high=1 << 20)
    inner = fields.count("ff_dim_multiplier", high=1 << 10) * (hidden // 3) * 2
    return -(-inner // 256) * 256 if fields.flag("gegelu_pad_to_256", True) else inner


def _multiplier(fields: Fields, name: str, default: float) -> float:
    """There is none where a file says null or 0."""
    none = name in fields.raw and not fields.raw[name]
    return 1.0 if none else fields.number(name, default, low=1e-6)


def _blocks(fields: Fields, heads: int) -> Blocks:
    stride = fields.count("blocksparse_vert_stride", 8)
    shift = 0 if fields.flag("blocksparse_homo_head_pattern") else max(stride // heads, 1)
    return Blocks(
        size=fields.count("blocksparse_block_size", 64),
        local=fields.count("blocksparse_num_local_blocks", 16),
        stride=stride,
        kept=tuple(head * shift for head in range(heads)),
    )


def _rope(fields: Fields, shape: dict[str, Any]) -> tuple[RopeSpec, tuple[float, float] | None]:
    """What turns, and what LongRoPE multiplies scores by: the square of what it gives queries and keys. Where
    it is, `rope_position_scale` is not looked at.
    """
    block, whole = fields.rope_parameters(), shape["context_length"]
    stretch, kind = None, block["rope_type"]
    if kind == "default":
        kind = "linear"
        block |= {"rope_type": kind, "factor": 1 / fields.number("rope_position_scale", 1.0, low=1e-6)}
    elif kind in ("longrope", "su"):
        trained = block.get("original_max_position_embeddings") or whole
        grown = 1.0 if whole <= trained else math.sqrt(1 + math.log(whole / trained) / math.log(trained))
        stretch = float(block.get("short_mscale", 1.0)) ** 2, float(block.get("long_mscale", grown)) ** 2
        block |= {"attention_factor": 1.0}
    else:
        fields.refuse("rope_scaling", "null, or of type longrope")
    return read_rope(block, head_dim=shape["head_dim"], max_positions=whole), stretch


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Attention(GroupedAttention):
    def __init__(self, config: Config, rope: Rope, seen: BlockSparse | None) -> None:
        super().__init__(config, rope, bias=True, scale=config.attention_scale, alibi=seen)
        self._turns, self._stretch = rope, config.stretch

    def factors(self, step: Step) -> mx.array | None:
        if self._stretch is None:
            return None
        short, long = self._stretch
        of_rows = [[long if is_long else short] for is_long in self._turns.are_long(step)]
        return mx.broadcast_to(mx.array(of_rows), (len(of_rows), step.width))

    @property
    def shift(self) -> Rotate | None:
        """Blocks begin elsewhere once tokens are gone."""
        return super().shift if self._alibi is None else None


class ClippedMLP(Module):
    """down(quick_gelu(gate(x)) · (up(x) + 1)), both clipped, their rows in turn in one matrix."""

    by_inner: ClassVar[bool] = True

    def __init__(self, hidden: int, inner: int, limit: float) -> None:
        super().__init__()
        self.up_proj = nn.Linear(hidden, 2 * inner)
        self.down_proj = nn.Linear(inner, hidden)
        self._limit = limit

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        both = linear(self.up_proj, x, step)
        gate, up = both[..., ::2], both[..., 1::2]
        return linear(self.down_proj, ops.table.clipped_gate(gate, up, self._limit, 1.702), step)


_NO_TOKENS = (100256, *range(100258, 100261), 100264, 100265, *range(100267, 100352))
"""Ids that its tokenizer has no token for. They are never drawn."""


class Phi3Small(CausalLM):
    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        logits = super().logits(hidden, step)
        unused = [i for i in _NO_TOKENS if i < logits.shape[-1]]
        if not unused:
            return logits
        logits[..., mx.array(unused)] = mx.finfo(logits.dtype).min
        return logits


def build(config: Config) -> Phi3Small:
    norm, of = layer_norms(config), config.blocks
    seen = BlockSparse(of.kept, size=of.size, local=of.local, stride=of.stride)
    layers = [
        PreNorm(
            Attention(config, rope, seen if sparse else None),
            ClippedMLP(config.hidden_size, config.intermediate_size, config.limit),
            norm,
        )
        for rope, sparse in zip(layer_ropes(config), config.sparse, strict=True)
        if rope is not None
    ]
    return Phi3Small(config, layers, norm(), embed_scale=config.embed_scale, logit_scale=config.logit_scale)


_NAMES = ((".self_attn.dense.", ".self_attn.o_proj."), ("model.final_layernorm.", "model.norm."))


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(without_spares(config, weights), _NAMES)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
