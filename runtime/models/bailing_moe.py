"""Ling and Ring (BailingMoE): a Llama with one matrix for queries, keys and values, and mixtures.

The first version weighs experts by a softmax over all of them; the second by independent gates with a
correction, in groups, norms each head and rotates part of it. Some heads of the first are stored raw, and
their columns scaled to length one.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.expert_groups import read_groups
from runtime.config.fields import Fields
from runtime.models.family import CORRECTIONS, Family
from runtime.models.registry.names import architecture_name
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.layer import FeedForward, Mixer
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.joined_rows import parted_rows
from runtime.tensors.names import respelled, without_spares
from runtime.tensors.quantizing import SOURCE, Row
from runtime.trunks.decoder import CausalLM, attention_layout, head_norms, layer_ropes, rms_norms
from runtime.trunks.draft_heads import without_head
from runtime.trunks.mixture import (
    MixtureConfig,
    MixtureSpec,
    corrected_mixture,
    feed_forward,
    softmax_mixture,
)
from runtime.weights.packing import stored_packing, unpacked


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    bias: bool
    """On queries, keys and values."""
    head_norm: bool
    dense: int
    """So many of the first layers have no mixture."""
    corrected: bool
    """Independent gates with a correction, else a softmax over all experts."""
    unit_head: bool
    """The columns of the stored head are to be scaled to length one."""
    draft_heads: int
    """Stored behind the last layer."""


_ONLY = {
    "use_bias": False,
    "norm_softmax": False,
    "use_sliding_window": False,
    "multi_gate": False,
    "moe_router_enable_shared_expert": True,
    "moe_router_enable_routed_scaling": True,
    "use_rmsnorm": True,
}


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("bailing_moe",))
    second = architecture_name(raw) == "BailingMoeV2ForCausalLM"
    heads: dict[str, Any] = {"head_dim": 128} if second else {}
    shape = read_shape(fields, max_position_embeddings=32768, **heads)
    layers = layer_count(fields)
    fields.only(_ONLY)
    tied, unit = shape["tied"], fields.flag("norm_head")
    if tied and unit:
        fields.refuse("norm_head", "false where the embedding is the head, too")
    rope = one_rope(fields, shape, theta=600000.0, partial=1.0)
    if fields.count("rotary_dim", rope.dims) != rope.dims:
        fields.refuse("rotary_dim", f"{rope.dims}, as partial_rotary_factor says")
    mixture, corrected = _mixture(fields, second=second)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        bias=fields.flag("use_qkv_bias"),
        head_norm=fields.flag("use_qk_norm", second),
        dense=fields.count("first_k_dense_replace", 1 if second else 0, low=0),
        mixture=mixture,
        corrected=corrected,
        unit_head=unit,
        draft_heads=fields.count("num_nextn_predict_layers", 0, low=0, high=16),
    )


def _mixture(fields: Fields, *, second: bool) -> tuple[MixtureSpec, bool]:
    """And whether its router is corrected. The second version's is always, whatever a file says."""
    gates = fields.choice("score_function", ("softmax", "sigmoid"), "sigmoid" if second else "softmax")
    if second and gates == "softmax":
        fields.refuse("score_function", "sigmoid, as this class computes")
    corrected = fields.flag("moe_router_enable_expert_bias", second)
    if corrected != (gates == "sigmoid"):
        fields.refuse("moe_router_enable_expert_bias", f"{not corrected}, as scores are of {gates}")
    normalize = fields.flag("norm_topk_prob", True)
    if second and not normalize:
        fields.refuse("norm_topk_prob", "true, as this class computes")
    experts = fields.count("num_experts", high=1 << 16)
    chosen = fields.count("num_experts_per_tok", high=experts)
    groups, top_groups = read_groups(
        fields, experts, chosen, default=8 if second else 1, open_by_default=4 if second else 1
    )
    if groups > 1 and not corrected:
        fields.refuse("n_group", "1: groups are known of the second version alone")
    inner = fields.count("moe_intermediate_size", high=1 << 22)
    shared = fields.count("moe_shared_expert_intermediate_size", inner, high=1 << 22)
    scale = fields.number("routed_scaling_factor", 1.0)
    spec = MixtureSpec(
        experts=experts,
        chosen=chosen,
        inner=inner,
        shared=shared * fields.count("num_shared_experts", 1 if second else 0, low=0, high=1 << 10),
        groups=groups,
        top_groups=top_groups,
        normalize=normalize and chosen > 1,
        scale=scale,
    )
    return spec, corrected


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm(_attention(config, rope), _mlp(config, sparse=place >= config.dense), norm)
        for place, rope in enumerate(layer_ropes(config))
    ]
    return CausalLM(config, layers, norm())


def _attention(config: Config, rope: Rope | None) -> Mixer:
    if config.head_norm:
        return HeadNormAttention(config, rope, head_norms(config), qkv_bias=config.bias)
    return FusedAttention(config, rope, bias=config.bias, output_bias=False)


def _mlp(config: Config, *, sparse: bool) -> FeedForward:
    mixture = corrected_mixture if config.corrected else softmax_mixture
    return feed_forward(config, sparse=sparse, mixture=mixture)


_NAMES = (
    ("model.word_embeddings.", "model.embed_tokens."),
    (".attention.query_key_value.", ".self_attn.qkv_proj."),
    (".attention.dense.", ".self_attn.o_proj."),
    (".attention.query_layernorm.", ".self_attn.q_norm."),
    (".attention.key_layernorm.", ".self_attn.k_norm."),
    (".mlp.gate.expert_bias", ".mlp.gate.e_score_correction_bias"),
    (".mlp.gate.gate_proj.", ".mlp.gate."),
)


def adapt(config: Config, weights: Weights) -> Weights:
    """Draft heads are left out; queries, keys and values are apart where heads have norms. A packed head is
    mlx-lm's, which has scaled its columns before.
    """
    own = without_head(without_spares(config, weights), config.layers, config.draft_heads)
    if config.head_norm:
        parts = tuple(f".self_attn.{part}_proj." for part in "qkv")
        rows = tuple(heads * config.head_dim for heads in (config.heads, *[config.kv_heads] * 2))
        own = parted_rows(own, ".attention.query_key_value.", parts, rows)
    named = to_switch(respelled(own, _NAMES, trunk="model."), config.mixture.experts)
    # mlx-lm packs routers.
    for module in [name.removesuffix(".scales") for name in named if name.endswith(".mlp.gate.scales")]:
        _unpack(named, module, config.hidden_size)
    if config.unit_head and "lm_head.weight" in named and "lm_head.scales" not in named:
        wide = named["lm_head.weight"].astype(mx.float32)
        lengths = mx.sqrt(mx.sum(wide * wide, axis=0, keepdims=True))
        named["lm_head.weight"] = wide / (lengths + 1e-7)
    return named


def _unpack(weights: Weights, module: str, width: int) -> None:
    """Floats in place of codes. What is packed in no way that MLX has stays as it is and is reported."""
    scales, biases = weights.get(f"{module}.scales"), weights.get(f"{module}.biases")
    if scales is None:
        return
    packing = stored_packing(width, weights[f"{module}.weight"], scales, biases)
    if packing is not None:
        codes = weights[f"{module}.weight"]
        weights[f"{module}.weight"] = unpacked(codes, scales, biases, packing, mx.float32)
        weights.pop(f"{module}.scales")
        weights.pop(f"{module}.biases", None)


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    raw = Row(lambda tensor, _: tensor.has("lm_head."), SOURCE, "its columns are scaled when it is loaded")
    return Checkpoint(rows=(raw,) if config.get("norm_head") else (), heads_behind=True, singles=True)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # A correction under either of its names; scores are float32 products.
    wide=(*CORRECTIONS, ".expert_bias"),
    checkpoint=_checkpoint,
)
