"""Ling 3: delta attention with a decay per key channel (KDA), whose decays have a floor, and gated latent
attention at the end of each group of layers.

Mixtures are DeepSeek-V3's, behind first layers without. Published files store queries, keys and values of KDA
apart. Ling 2.5 has the same model_type; it is Ring-linear's kin.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, read_shape, sparse_layers
from runtime.config.fields import Fields
from runtime.config.latent import read_latent
from runtime.models import ring_linear
from runtime.models.family import CORRECTIONS, RATES, Family
from runtime.nn.attention.gated_mla import GatedLatentAttention
from runtime.nn.attention.mla import LatentShape
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.kimi_delta import KimiDeltaSpec, LingDelta
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.joined_rows import alike, joined_rows
from runtime.tensors.latent_heads import split_latent_heads
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, rms_norms
from runtime.trunks.mixture import MixtureConfig, feed_forward, read_mixture


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    delta: KimiDeltaSpec
    latent: LatentShape
    rope: RopeSpec
    """Of the part of queries and keys of latent attention that is rotated."""
    recurrent: tuple[bool, ...]
    """Of each layer: it is a delta net; else latent attention."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.only({"rope_interleave": True, "no_kda_lora": True})
    _refuse_clips(fields)
    _refuse_unsaid_length(fields)
    shape = read_shape(
        fields,
        activations=("silu", "swish"),
        vocab_size=157184,
        hidden_size=2560,
        intermediate_size=6144,
        num_attention_heads=32,
        num_key_value_heads=32,
        head_dim=128,
        max_position_embeddings=262144,
    )
    shape["tied"] = False  # whatever the config says: the reference never ties, and saves a head
    layers = layer_count(fields, 42)
    latent, rope = read_latent(fields, shape, ranks=(None, 512), theta=6e6)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        delta=_delta(fields, shape),
        latent=latent,
        rope=rope,
        mixture=read_mixture(
            fields, experts=512, chosen=8, inner=768, scale=2.5, name="num_local_experts", groups=(8, 4)
        ),
        recurrent=_recurrent(fields, layers),
        sparse=sparse_layers(fields, layers, 2),
    )


def _refuse_clips(fields: Fields) -> None:
    """Limits of gates in layers, which their authors' files may list and transformers does not look at."""
    for name in ("expert_swiglu_limit_list", "share_expert_swiglu_limit_list"):
        told = fields.raw.get(name)
        if told and (not isinstance(told, list) or any(told)):
            fields.refuse(name, "none: clipped gates are not computed here")


def _refuse_unsaid_length(fields: Fields) -> None:
    """transformers takes its default for it where a file says model_max_length."""
    block = fields.rope_parameters()
    if block["rope_type"] == "yarn" and "original_max_position_embeddings" not in block:
        name = "rope_scaling" if fields.has("rope_scaling") else "rope_parameters"
        fields.refuse(name, "a block that says original_max_position_embeddings")


def _delta(fields: Fields, shape: dict[str, Any]) -> KimiDeltaSpec:
    """In files that transformers saves `head_dim` is of latent attention, and the fields of KDA have names of
    their own, which count for more.
    """
    taps = fields.count("short_conv_kernel_size", 4, low=2, high=64)
    lowest = fields.number("kda_lower_bound", -5.0, high=-1e-6)
    return KimiDeltaSpec(
        heads=fields.count("linear_num_heads", shape["heads"], high=4096),
        size=fields.count("linear_head_dim", shape["head_dim"], high=4096),
        taps=fields.count("linear_conv_kernel_dim", taps, low=2, high=64),
        eps=shape["norm_eps"],
        lowest=lowest if fields.flag("kda_safe_gate", True) else None,
    )


def _recurrent(fields: Fields, layers: int) -> tuple[bool, ...]:
    kinds = fields.words("layer_types", layers, ("linear_attention", "full_attention"))
    if kinds is not None:
        return tuple(kind == "linear_attention" for kind in kinds)
    size = fields.count("layer_group_size", 6)
    return tuple((i + 1) % size != 0 for i in range(layers))


def layout(config: Config) -> list[LayerSpec]:
    return [config.delta.memory if folds else config.latent.memory for folds in config.recurrent]


def build(config: Config) -> CausalLM:
    norm, rope, hidden = rms_norms(config), Rope(config.rope), config.hidden_size
    layers = [
        PreNorm(
            LingDelta(hidden, config.delta) if folds else GatedLatentAttention(config.latent, rope),
            feed_forward(config, sparse=sparse),
            norm,
        )
        for folds, sparse in zip(config.recurrent, config.sparse, strict=True)
    ]
    return CausalLM(config, layers, norm())


_RENAMED = (
    ("model.word_embeddings.", "model.embed_tokens."),
    (".attention.dense.", ".self_attn.o_proj."),
    (".attention.", ".self_attn."),
    (".self_attn.forget_gate.", ".self_attn."),
    (".mlp.gate.expert_bias", ".mlp.gate.e_score_correction_bias"),
)
_MATRICES = tuple(f".self_attn.{part}_proj." for part in "qkv")
_FILED = tuple(f".attention.{part}_proj." for part in "qkv")
"""The same as published files name them."""
_FILTERS = tuple(f".self_attn.{part}_conv1d." for part in "qkv")


def adapt(config: Config, weights: Weights) -> Weights:
    """Queries, keys and values of KDA joined; latent heads apart; experts stacked; filters to MLX's axis
    order.
    """
    named = respelled(without_spares(config, weights), _RENAMED)
    for parts, whole in ((_MATRICES, ".self_attn.qkv_proj."), (_FILTERS, ".self_attn.conv1d.")):
        named = joined_rows(named, parts, whole)
    named = with_filters(named)
    for name, array in named.items():
        if name.endswith(".A_log"):
            named[name] = array.reshape(1, 1, -1, 1)
    return split_latent_heads(to_switch(named, config.mixture.experts), config.latent)


def _second(config: Mapping[str, Any]) -> Family | None:
    """Ling 2.5's, whose lightning attention norms groups of heads."""
    return ring_linear.FAMILY if config.get("group_norm_size") is not None else None


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # Scores differ by less than a 16-bit float can tell, too.
    wide=(*RATES, *CORRECTIONS, ".mlp.gate.weight"),
    variant=_second,
    checkpoint=always(
        Checkpoint(
            rows=(alike((*_MATRICES, *_FILED)),),
            joined=(_MATRICES, _FILED),
            heads_behind=True,
            default_layers=42,
        )
    ),
)
