"""Hunyuan Large and the 7B before V1: layers in groups read the keys and values of the group's first one.

Each layer norms keys by weights of its own. Since a score is a product, those weights may stand on the
queries as well: so what is remembered, normed keys without weights, serves a whole group. One expert answers
each token, by as much as the softmax gives it, beside one that always does.

Sources: arXiv 2411.02265; mlx-lm's hunyuan.py, the authors' modeling_hunyuan.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Shared
from runtime.cache.protocol import AttentionCache
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields
from runtime.models import hunyuan
from runtime.models.family import Family
from runtime.models.internlm2 import apart
from runtime.nn.attention.attend import attend_over, split_heads
from runtime.nn.attention.attention_sublayer import AttentionSublayer
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.moe import SharedMoE
from runtime.nn.feed_forward.router import RuledRouter
from runtime.nn.layer import FeedForward
from runtime.nn.linear import linear
from runtime.nn.norm import Normalize, RMSNorm, rms
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.nn.residual.sublayer import attention_parts
from runtime.parts.attention import AttentionParts
from runtime.parts.feed_forward import Routing
from runtime.parts.heads import Heads
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, gated_mlp, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    normed: bool
    """Are queries and keys?"""
    group: int
    """How many layers read the keys and values of the first of them."""
    experts: int
    """0: its MLPs are dense."""
    inners: tuple[int, ...]
    """Of each layer: the size of an expert."""
    shared: tuple[int, ...]
    """Of each layer: the size of the expert that always answers; 0: there is none."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("hunyuan",))
    fields.only({"use_pack_kv": False, "mlp_bias": False})
    shape = read_shape(Fields({**fields.raw, "head_dim": None}), eps=1e-6, activations=("silu",), tied=True)
    layers = layer_count(fields)
    experts = fields.count("num_experts", 1, high=1 << 16)
    inners = _of_layers(fields, "moe_intermediate_size", layers, shape["intermediate_size"])
    mixed = fields.flag("use_mixed_mlp_moe")
    shares = _of_layers(fields, "num_shared_expert", layers, 1)
    if experts > 1 and _of_layers(fields, "moe_topk", layers, 1) != (1,) * layers:
        fields.refuse("moe_topk", "1: the authors' code and mlx-lm's weigh several experts otherwise")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(hunyuan.read_rotation(fields, shape, always=True),) * layers,
        bias=fields.flag("attention_bias"),
        normed=fields.flag("use_qk_norm"),
        group=fields.count("cla_share_factor", 2, high=4096) if fields.flag("use_cla") else 1,
        experts=experts if experts > 1 else 0,
        inners=inners,
        shared=tuple(share * shape["intermediate_size"] * mixed for share in shares),
    )


def _of_layers(fields: Fields, name: str, layers: int, default: int) -> tuple[int, ...]:
    """One number for all layers, or one for each."""
    given = fields.raw.get(name)
    if not isinstance(given, list):
        return (fields.count(name, default, high=1 << 22),) * layers
    if len(given) != layers or any(type(one) is not int or not 1 <= one <= 1 << 22 for one in given):
        fields.refuse(name, f"a number, or a list of {layers} of them")
    return tuple(given)


def layout(config: Config) -> list[LayerSpec]:
    own = Full(config.kv_heads, config.head_dim)
    firsts = (place - place % config.group for place in range(config.layers))
    return [own if place == first else Shared(first) for place, first in enumerate(firsts)]


def _weighed(queries: mx.array, norm: RMSNorm, keys: RMSNorm) -> mx.array:
    """Normed, with the weights of keys besides."""
    return norm(queries) * keys.weight.astype(queries.dtype)


class Lender(hunyuan.Attention):
    """Attention whose memory others read, too."""

    def place(self, queries: mx.array, keys: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        queries, keys = SelfAttention.place(self, queries, keys, step)
        return _weighed(queries, self.query_layernorm, self.key_layernorm), rms(keys, self.key_layernorm.eps)


class Reader(AttentionSublayer):
    """Attention over the memory of another layer. B rows, L tokens, H heads, K head size."""

    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__()
        inner, size = config.heads * config.head_dim, config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, inner, bias=config.bias)
        self.o_proj = nn.Linear(inner, config.hidden_size, bias=config.bias)
        if config.normed:
            self.query_layernorm, self.key_layernorm = (RMSNorm(size, eps=config.norm_eps) for _ in range(2))
        self._rope, self._groups = rope, config.kv_heads
        self._attends = Heads(config.heads, config.kv_heads, size, size**-0.5, rope)

    @property
    def head_counts(self) -> tuple[int, int]:
        """As in `runtime.nn.attention.self_attention`."""
        return self._attends.count, self._attends.groups

    def of_heads(self, heads: int, groups: int) -> dict[str, Any]:
        """As in `runtime.nn.attention.self_attention`."""
        return {"_attends": replace(self._attends, count=heads, groups=groups)}

    def parts(self, norm: Normalize | None, after: Normalize | None) -> AttentionParts | None:
        """See `sublayer.added`."""
        if "query_layernorm" in self:
            return None
        return attention_parts(
            AttentionParts(self._attends, norm, (self.q_proj,), None, self.o_proj, after, reads=True)
        )

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        heads, rope = self._attends, self._rope
        queries = split_heads(linear(self.q_proj, x, step), heads.count)
        if "query_layernorm" in self:
            queries = queries if rope is None else rope(queries, step)
            queries = _weighed(queries, self.query_layernorm, self.key_layernorm)
            rope = None
        return attend_over(step, cache, queries, scale=heads.scale, rope=rope)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm((Reader if place % config.group else _own)(config, rope), _mlp(config, place), norm)
        for place, rope in enumerate(layer_ropes(config))
    ]
    return CausalLM(config, layers, norm())


def _own(config: Config, rope: Rope | None) -> SelfAttention:
    if config.normed:
        kind = hunyuan.Attention if config.group == 1 else Lender
        return kind(config, rope, bias=config.bias)
    return SelfAttention(config, rope, qkv_bias=config.bias, output_bias=config.bias)


def _mlp(config: Config, place: int) -> FeedForward:
    if not config.experts:
        return gated_mlp(config)
    hidden, shared = config.hidden_size, config.shared[place]
    router = RuledRouter(hidden, config.experts, Routing("softmax", 1, normalize=False))
    return SharedMoE(hidden, config.inners[place], config.experts, router, shared=shared)


_NAMES = ((".mlp.gate.wg.", ".mlp.gate."), (".mlp.shared_mlp.", ".mlp.shared_experts."))
_HALVES = ("up_proj", "gate_proj")


def adapt(config: Config, weights: Weights) -> Weights:
    parts = _without_joined(config, without_spares(config, weights))
    return to_switch(respelled(parts, _NAMES), config.experts)


def _without_joined(config: Config, weights: Weights) -> Weights:
    """Files of the 7B have one matrix for queries, keys and values, and one for both that open an MLP."""
    found: Weights = {}
    for name, array in apart(config, weights, ".self_attn.qkv_proj.", ".self_attn.").items():
        if ".gate_and_up_proj." not in name:
            found[name] = array
            continue
        for part, half in zip(_HALVES, mx.split(array, 2, axis=0), strict=True):
            found[name.replace("gate_and_up_proj", part)] = half
    return found


FAMILY = Family(
    parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=always(Checkpoint(singles=True))
)
