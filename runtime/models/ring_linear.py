"""Ring-linear 2.0 (and Ling-linear): lightning attention, softmax attention every few layers, and mixtures of
DeepSeek-V3's kind behind the first layers. Ling 2.5 and Ring 2.5 have latent attention in those layers; their
files say the model_type that Ling 3's do.

How fast a layer forgets is counted from one layer too early, as in the authors' own modeling file, so the
first layer forgets faster than any slope of ALiBi; mlx-lm gives it that of the second, and each of Ling 2.5's
layers that of the next.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.expert_groups import read_groups
from runtime.config.fields import Fields
from runtime.config.latent import read_latent
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.attention.fused_attention import FusedAttention, FusedHeadNormAttention
from runtime.nn.attention.mla import LatentAttention, LatentShape
from runtime.nn.layer import Mixer
from runtime.nn.positions.alibi import slopes
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.recurrent.lightning import LightningSpec, TurnedLightning
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.latent_heads import split_latent_heads
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, head_norms, layer_ropes, rms_norms
from runtime.trunks.mixture import MixtureConfig, MixtureSpec, feed_forward


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    linear: LightningSpec
    recurrent: tuple[bool, ...]
    """Of each layer: its attention is linear; else softmax."""
    head_norm: bool
    """Queries and keys are normed per head."""
    qkv_bias: bool
    dense: int
    """So many first layers have plain MLPs, the others mixtures."""
    latent: LatentShape | None
    """Of attention in layers that are not linear; None: all heads have keys and values of their own."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = _shape(fields)
    layers = layer_count(fields, 20)
    _refuse_unknown(fields)
    recurrent, rope = _recurrent(fields, layers), _rope(fields, shape)
    latent, own = _latent(fields, shape) if fields.raw.get("model_type") == "bailing_hybrid" else (None, rope)
    bias, head_norm = fields.flag("use_qkv_bias"), fields.flag("use_qk_norm", True)
    inner = shape["heads"] * shape["head_dim"]
    groups = fields.count("group_norm_size", 1, high=1 << 16)
    if inner % groups:
        fields.refuse("group_norm_size", f"a divisor of {inner}, the width of all heads")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=tuple(rope if folds else own for folds in recurrent),
        linear=LightningSpec(
            hidden=shape["hidden_size"],
            heads=shape["heads"],
            head_dim=shape["head_dim"],
            eps=shape["norm_eps"],
            norm_groups=groups,
            head_norm=head_norm,
            bias=bias,
        ),
        recurrent=recurrent,
        head_norm=head_norm,
        qkv_bias=bias,
        dense=fields.count("first_k_dense_replace", 1, low=0),
        mixture=_mixture(fields),
        latent=latent,
    )


def _latent(fields: Fields, shape: dict[str, Any]) -> tuple[LatentShape, RopeSpec]:
    if fields.rope_parameters()["rope_type"] != "default":
        fields.refuse("rope_scaling", "none: how latent attention is scaled is not said")
    latent, rope = read_latent(fields, shape, ranks=(None, 512), theta=600000.0)
    return replace(latent, norm_eps=shape["norm_eps"], bias=fields.flag("use_qkv_bias")), rope


def _shape(fields: Fields) -> dict[str, Any]:
    return read_shape(
        fields,
        activations=("silu", "swish"),
        vocab_size=157184,
        hidden_size=2048,
        intermediate_size=5120,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=32768,
    )


def _rope(fields: Fields, shape: dict[str, Any]) -> RopeSpec:
    rope = one_rope(fields, shape, theta=600000.0, partial=1.0)
    if fields.raw.get("rotary_dim", rope.dims) != rope.dims:
        fields.refuse("rotary_dim", f"{rope.dims}, as partial_rotary_factor says")
    return rope


def _recurrent(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Softmax attention ends each group of layers, and is in all that are left behind the last one."""
    size = fields.count("layer_group_size", 1)
    whole = layers // size * size
    return tuple(i < whole and (i + 1) % size != 0 for i in range(layers))


_ONLY = {
    "use_bias": False,
    "norm_head": False,
    "norm_softmax": False,
    "use_rmsnorm": True,
    "rope_traditional": False,
    "linear_rope": True,
    "linear_silu": False,
    "use_linear_silu": False,
    "moe_router_enable_routed_scaling": True,
    "using_split_qkv_in_self_attention": False,
}


def _refuse_unknown(fields: Fields) -> None:
    fields.only(_ONLY)
    fields.choice("score_function", ("sigmoid",), "sigmoid")


def _mixture(fields: Fields) -> MixtureSpec:
    experts = fields.count("num_experts", 256, high=1 << 16)
    chosen = fields.count("num_experts_per_tok", 8, high=experts)
    inner = fields.count("moe_intermediate_size", 512, high=1 << 22)
    groups, top_groups = read_groups(fields, experts, chosen, default=8, open_by_default=4)
    shared = fields.count("moe_shared_expert_intermediate_size", inner, high=1 << 22)
    if not fields.flag("moe_router_enable_expert_bias", True):
        fields.refuse("moe_router_enable_expert_bias", "true: experts are chosen with a correction")
    if not fields.flag("moe_router_enable_shared_expert", True):
        shared = 0
    return MixtureSpec(
        experts=experts,
        chosen=chosen,
        inner=inner,
        shared=shared * fields.count("num_shared_experts", 1, low=0, high=1 << 10),
        groups=groups,
        top_groups=top_groups,
        normalize=chosen > 1 and fields.flag("norm_topk_prob", True),
        scale=fields.number("routed_scaling_factor", 1.0),
    )


def layout(config: Config) -> list[LayerSpec]:
    attention = attention_layout(config)
    if config.latent is not None:
        attention = [config.latent.memory] * config.layers
    return [
        config.linear.memory if folds else own for folds, own in zip(config.recurrent, attention, strict=True)
    ]


def _mixer(config: Config, rope: Rope | None, place: int) -> Mixer:
    if config.recurrent[place]:
        assert rope is not None
        share = 1 - (place - 1) / max(config.layers - 1, 1) + 1e-5
        return TurnedLightning(config.linear, [share * float(one) for one in slopes(config.heads)], rope)
    if config.latent is not None:
        return LatentAttention(config.latent, rope)
    if config.head_norm:
        return FusedHeadNormAttention(
            config, rope, head_norms(config), bias=config.qkv_bias, output_bias=False
        )
    return FusedAttention(config, rope, bias=config.qkv_bias, output_bias=False)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm(
            _mixer(config, rope, place),
            feed_forward(config, sparse=place >= config.dense),
            norm,
        )
        for place, rope in enumerate(layer_ropes(config))
    ]
    return CausalLM(config, layers, norm())


_RENAMED = (
    ("model.word_embeddings.", "model.embed_tokens."),
    (".attention.query_key_value.", ".self_attn.qkv_proj."),
    (".attention.dense.", ".self_attn.o_proj."),
    (".attention.query_layernorm.", ".self_attn.q_norm."),
    (".attention.key_layernorm.", ".self_attn.k_norm."),
    (".attention.", ".self_attn."),
    (".mlp.gate.gate_proj.", ".mlp.gate."),
    (".mlp.gate.expert_bias", ".mlp.gate.e_score_correction_bias"),
)


def adapt(config: Config, weights: Weights) -> Weights:
    kept = to_switch(respelled(without_spares(config, weights), _RENAMED), config.mixture.experts)
    return kept if config.latent is None else split_latent_heads(kept, config.latent)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=CORRECTIONS,
    checkpoint=always(Checkpoint(heads_behind=True, default_layers=20, singles=True)),
)
