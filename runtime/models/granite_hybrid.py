"""Granite 4 hybrid: Mamba-2 layers, some attention, every layer with a shared block and, in most sizes,
routed experts.

Multipliers scale embeddings, attention scores, what each sublayer adds, and logits. Positions are left
out unless the config says "rope".
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec
from runtime.cache.protocol import StepCache
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.config.mamba import read_mamba2, recurrent_layers, settled
from runtime.models.family import RATES, Family
from runtime.models.granitemoe import MODULES, STACKS
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.router import choose
from runtime.nn.layer import FeedForward, Mixer
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize, RMSNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.mamba2 import Mamba2, Mamba2Spec
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import Always, mixture_parts
from runtime.parts.feed_forward import MixtureParts, Routing
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.experts import Weights, split_gate_up, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, layer_ropes


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    attention_bias: bool
    recurrent: tuple[bool, ...]
    """Of each layer: it is a Mamba-2 layer, else attention."""
    mixer: Mamba2Spec
    experts: int
    """0: the shared block is all."""
    chosen: int
    """Experts asked per token."""
    shared_size: int
    """Of the shared block."""
    embed_by: float
    """Embeddings are multiplied by it."""
    scores_by: float
    """Attention scores are multiplied by it."""
    residual_by: float
    """What a sublayer adds is multiplied by it."""
    logits_over: float
    """Logits are divided by it."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    layers = layer_count(fields)
    shape = read_shape(fields, max_position_embeddings=2048)
    turned = fields.raw.get("position_embedding_type") == "rope"
    experts = fields.count("num_local_experts", 8, low=0, high=1 << 16)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape) if turned else None,) * layers,
        attention_bias=fields.flag("attention_bias"),
        recurrent=recurrent_layers(fields, layers) or settled(fields, (True,) * layers),
        mixer=read_mamba2(fields, shape["hidden_size"], shape["norm_eps"]),
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 2, high=experts) if experts else 0,
        shared_size=fields.count("shared_intermediate_size", 1024, high=1 << 22),
        embed_by=fields.number("embedding_multiplier", 1.0),
        scores_by=fields.number("attention_multiplier", 1.0),
        residual_by=fields.number("residual_multiplier", 1.0),
        logits_over=fields.number("logits_scaling", 1.0, low=1e-6),
    )


def layout(config: Config) -> list[LayerSpec]:
    full = Full(config.kv_heads, config.head_dim)
    return [config.mixer.memory if recurrent else full for recurrent in config.recurrent]


class SparseMLP(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.router = nn.Linear(hidden, config.experts, bias=False)
        self.switch_mlp = Experts(hidden, inner, config.experts, activation=config.activation)
        self.routing = Routing("best", config.chosen)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return self.switch_mlp(x, choose(self.routing, linear(self.router, x, step)), step)


class Both:
    """Experts, and a block beside them that every token passes; not a module, since files have both in the
    layer.
    """

    def __init__(self, shared: GatedMLP, sparse: SparseMLP) -> None:
        self._shared, self._sparse = shared, sparse

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return self._shared(x, step) + self._sparse(x, step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> MixtureParts | None:
        """See `sublayer.added`."""
        sparse = self._sparse
        shared = Always(self._shared)
        return mixture_parts(norm, sparse.router, sparse.routing, sparse.switch_mlp, after, shared)


class Block(Sublayers):
    def __init__(self, config: Config, rope: Rope | None, *, recurrent: bool) -> None:
        super().__init__()
        hidden, eps, bias = config.hidden_size, config.norm_eps, config.attention_bias
        if recurrent:
            self.mamba = Mamba2(config.mixer)
        else:
            self.self_attn = SelfAttention(
                config, rope, qkv_bias=bias, output_bias=bias, scale=config.scores_by
            )
        if config.experts:
            self.block_sparse_moe = SparseMLP(config)
        self.shared_mlp = GatedMLP(hidden, config.shared_size, activation=config.activation)
        self.input_layernorm = RMSNorm(hidden, eps=eps)
        self.post_attention_layernorm = RMSNorm(hidden, eps=eps)
        self._recurrent, self._sparse = recurrent, config.experts > 0
        self.share = config.residual_by

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        mixer, feed = self._parts()
        x = x + mixer(self.input_layernorm(x), step, cache) * self.share
        return x + feed(self.post_attention_layernorm(x), step) * self.share

    def sublayers(self) -> tuple[NormedSublayer, ...]:
        mixer, feed = self._parts()
        return (mixer, self.input_layernorm, None), (feed, self.post_attention_layernorm, None)

    def _parts(self) -> tuple[Mixer, FeedForward]:
        mixer = self.mamba if self._recurrent else self.self_attn
        return mixer, Both(self.shared_mlp, self.block_sparse_moe) if self._sparse else self.shared_mlp


class GraniteHybrid(CausalLM):
    def __init__(self, config: Config) -> None:
        kinds = zip(layer_ropes(config), config.recurrent, strict=True)
        layers = [Block(config, rope, recurrent=recurrent) for rope, recurrent in kinds]
        norm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        super().__init__(
            config, layers, norm, embed_scale=config.embed_by, logit_scale=1 / config.logits_over
        )


def build(config: Config) -> GraniteHybrid:
    return GraniteHybrid(config)


_RENAMED = (
    (".block_sparse_moe.input_linear.", ".block_sparse_moe.experts.gate_up_proj."),
    (".block_sparse_moe.output_linear.", ".block_sparse_moe.experts.down_proj."),
    (".block_sparse_moe.router.layer.", ".block_sparse_moe.router."),
    (".shared_mlp.input_linear.", ".shared_mlp.gate_up_proj."),
    (".shared_mlp.output_linear.", ".shared_mlp.down_proj."),
    (".mlp.", ".shared_mlp."),
)


def adapt(config: Config, weights: Weights) -> Weights:
    """Fused matrices apart, filters to MLX's axis order. MLX calls the shared block `mlp` where it is
    alone.
    """
    adapted: Weights = {}
    for name, array in without_spares(config, weights).items():
        for old, new in _RENAMED:
            name = name.replace(old, new)
        adapted[name] = array
    adapted = with_filters(adapted)
    return to_switch(adapted, config.experts) if config.experts else split_gate_up(adapted)


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    """Without experts MLX has an ordinary MLP where the checkpoint has the shared expert alone."""
    if config.get("num_local_experts"):
        return Checkpoint(stacks=STACKS, modules=MODULES)
    return Checkpoint(
        halved=((".shared_mlp.input_linear.", (".mlp.gate_proj.", ".mlp.up_proj.")),),
        renamed=((".shared_mlp.output_linear.", ".mlp.down_proj."),),
    )


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=RATES,
    checkpoint=_checkpoint,
)
