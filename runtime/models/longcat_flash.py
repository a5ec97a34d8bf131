"""LongCat-Flash: blocks of two latent attentions and two MLPs in turn, with a mixture beside that reads what
the first MLP does and is added behind the second. Some of its experts answer what they read.

Latents and queries are multiplied by numbers that their sizes give, which are taken into a norm's weight and
the scale of scores.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, by_layer
from runtime.config.decoder import DecoderConfig, read_shape
from runtime.config.fields import Fields
from runtime.config.latent import read_latent
from runtime.errors import UnsupportedModel
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.attention.mla import LatentAttention, LatentShape
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.router import RuledRouter
from runtime.nn.linear import embed
from runtime.nn.module import Module
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.sublayer import added
from runtime.parts.feed_forward import Routing
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.latent_heads import split_latent_heads
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import gated_mlp, rms_norms
from runtime.trunks.headed import Headed, untied_head


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    latent: LatentShape
    latent_scale: float
    """Of latents, behind their norm."""
    rope: RopeSpec
    """Of the part of queries and keys that is rotated."""
    experts: int
    """With matrices."""
    idle: int
    """Experts whose answer is what they read."""
    routing: Routing
    expert_size: int


def parse(raw: Mapping[str, Any]) -> Config:
    return Config(**read(Fields(raw)))


def read(fields: Fields) -> dict[str, Any]:
    """The fields of Config."""
    _refuse_unknown(fields)
    shape = read_shape(
        fields,
        eps=1e-5,
        vocab_size=131072,
        hidden_size=6144,
        intermediate_size=12288,
        num_attention_heads=64,
        head_dim=64,
        max_position_embeddings=131072,
    )
    latent, rope = read_latent(fields, shape, theta=1e7)
    if latent.query_rank is None:
        fields.refuse("q_lora_rank", "a rank: queries are made in two steps here")
    layers = _layers(fields)
    experts = fields.count("n_routed_experts", 512, high=1 << 16)
    idle = fields.count("zero_expert_num", 256, low=0, high=1 << 16)
    hidden = shape["hidden_size"]
    routing = Routing(
        "softmax",
        fields.count("moe_topk", 12, high=experts + idle),
        scale=fields.number("routed_scaling_factor", 6.0),
    )
    return {
        **shape,
        "windows": (None,) * layers,
        "ropes": (rope,) * layers,
        "latent": replace(latent, scale=latent.scale * (hidden / latent.query_rank) ** 0.5),
        "latent_scale": (hidden / latent.rank) ** 0.5,
        "rope": rope,
        "experts": experts,
        "idle": idle,
        "routing": routing,
        "expert_size": fields.count("expert_ffn_hidden_size", 2048, high=1 << 22),
    }


_ONLY = {
    "mla_scale_q_lora": True,
    "mla_scale_kv_lora": True,
    "rope_interleave": True,
    "router_bias": False,
    "norm_topk_prob": False,
}


def _refuse_unknown(fields: Fields) -> None:
    """What mlx-lm or the authors' code would compute, and transformers does not look at."""
    fields.only(_ONLY)
    fields.choice("zero_expert_type", ("identity",), "identity")
    fields.choice("attention_method", ("MLA",), "MLA")
    content, position = fields.count("qk_nope_head_dim", 128), fields.count("qk_rope_head_dim", 64)
    if fields.raw.get("qk_head_dim") not in (None, content + position):
        fields.refuse("qk_head_dim", f"{content + position}, of qk_nope_head_dim and qk_rope_head_dim")


def _layers(fields: Fields) -> int:
    """Each is two to whoever counts attentions."""
    twice = fields.raw.get("num_hidden_layers")
    layers = fields.count("num_layers", twice // 2 if type(twice) is int else 28, high=2048)
    if twice not in (None, 2 * layers):
        raise UnsupportedModel(
            f"config.json: num_hidden_layers is {quoted(twice)}, expected twice num_layers, {2 * layers}"
        )
    return layers


def layout(config: Config) -> list[LayerSpec]:
    return [config.latent.memory] * (2 * config.layers)


class Mixture(Module):
    """[B, L, D] -> [B, L, D]"""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, every = config.hidden_size, config.experts + config.idle
        self.gate = RuledRouter(hidden, every, config.routing, corrected=True)
        self.switch_mlp = Experts(hidden, config.expert_size, config.experts, activation=config.activation)
        self._experts = config.experts

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        chosen, weights = self.gate(x, step)
        idle = chosen >= self._experts
        asked = mx.where(idle, 0, chosen), mx.where(idle, 0.0, weights)
        still = mx.where(idle, weights, 0.0).sum(axis=-1, keepdims=True)
        return self.switch_mlp(x, asked, step) + x * still.astype(x.dtype)


class Block(Module):
    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__()
        norm = rms_norms(config)
        self.self_attn = [LatentAttention(config.latent, rope) for _ in range(2)]
        self.mlps = [gated_mlp(config) for _ in range(2)]
        self.input_layernorm = [norm() for _ in range(2)]
        self.post_attention_layernorm = [norm() for _ in range(2)]
        self.mlp = Mixture(config)

    def __call__(self, x: mx.array, step: Step, caches: tuple[AttentionCache, AttentionCache]) -> mx.array:
        x = added(x, self.self_attn[0], step, caches[0], norm=self.input_layernorm[0])
        beside = self.mlp(self.post_attention_layernorm[0](x), step)
        x = added(x, self.mlps[0], step, norm=self.post_attention_layernorm[0])
        x = added(x, self.self_attn[1], step, caches[1], norm=self.input_layernorm[1])
        return added(x, self.mlps[1], step, norm=self.post_attention_layernorm[1]) + beside


class Trunk(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: Config) -> None:
        super().__init__()
        rope = Rope(config.rope)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [Block(config, rope) for _ in range(config.layers)]
        self.norm = rms_norms(config)()

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        pairs = by_layer(caches, 2)
        return self.norm(ops.table.layers(self.layers, step.embedded(self.embed), step, pairs))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step)


class LongcatFlash(Headed):
    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config))


def build(config: Config) -> LongcatFlash:
    return LongcatFlash(config)


_RENAMED = (
    (".mlp.router.classifier.", ".mlp.gate."),
    (".mlp.router.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"),
)
_EXPERT = re.compile(r"\.mlp\.experts\.(\d{1,5})\.", re.ASCII)
_SCALED = ".kv_a_layernorm.weight"


def adapt(config: Config, weights: Weights) -> Weights:
    """Norms of latents times what these are multiplied by; latent heads apart; experts stacked, without what
    transformers holds and saves for those that have no matrices.
    """
    named: Weights = {}
    kept = respelled(without_spares(config, weights), _RENAMED)
    kept = {name: array for name, array in kept.items() if not _is_idle(config, name)}
    for name, array in to_switch(kept, config.experts).items():
        if name.endswith(_SCALED):
            array = array.astype(mx.float32) * config.latent_scale
        named[name] = _with_matrices(config, array) if ".mlp.switch_mlp." in name else array
    return split_latent_heads(named, config.latent)


def _with_matrices(config: Config, stack: mx.array) -> mx.array:
    every = stack.shape[0] == config.experts + config.idle
    return stack[: config.experts] if every else stack


def _is_idle(config: Config, name: str) -> bool:
    found = _EXPERT.search(name)
    return found is not None and int(found[1]) >= config.experts


WIDE = *CORRECTIONS, ".mlp.gate.weight"
"""Scores differ by less than a 16-bit float can tell, too."""


def checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    """Without the matrices of experts that have none."""
    first, idle = config.get("n_routed_experts"), config.get("zero_expert_num")
    first, idle = (one if isinstance(one, int) else 0 for one in (first, idle))
    places = range(first, first + min(idle, 1 << 16)) if first else ()
    spare = tuple(f".mlp.experts.{i}.{part}_proj.weight" for i in places for part in ("gate", "up"))
    return Checkpoint(heads=("mtp.", "model.mtp."), spare=spare, every=first + len(places))


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=WIDE,
    checkpoint=checkpoint,
)
