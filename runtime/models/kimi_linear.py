"""Kimi Linear: delta attention with a decay per key channel (KDA), and latent attention without positions
every few layers.

The first layers have a dense feed-forward block, the others a mixture of experts with a shared one
(DeepSeek-V3's). Published files store queries, keys and values of KDA apart, and the layer kinds as two
lists of layers counted from one.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, listed_layers, read_shape, sparse_layers
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import CORRECTIONS, RATES, Family
from runtime.nn.attention.mla import LatentAttention, LatentShape
from runtime.nn.layer import Mixer
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.kimi_delta import KimiDelta, KimiDeltaSpec
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.joined_rows import alike, joined_rows
from runtime.tensors.latent_heads import split_latent_heads
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, rms_norms
from runtime.trunks.mixture import MixtureConfig, feed_forward, read_mixture


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    delta: KimiDeltaSpec
    latent: LatentShape
    recurrent: tuple[bool, ...]
    """Of each layer: it is a delta net; else latent attention."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    layers = layer_count(fields)
    shape = read_shape(fields, eps=1e-5, max_position_embeddings=1 << 20)
    shape["context_length"] = fields.count("model_max_length", shape["context_length"])
    shape["tied"] = False  # whatever the config says: the reference never ties, and saves a head
    if not fields.flag("mla_use_nope", True) or fields.count("moe_layer_freq", 1) != 1:
        raise UnsupportedModel(
            "config.json: mla_use_nope is false or moe_layer_freq is not 1, and neither is computed here"
        )
    fields.choice("moe_router_activation_func", ("sigmoid",), "sigmoid")
    fields.choice("hidden_act", ("silu",), "silu")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(None,) * layers,
        delta=read_delta(fields, shape["norm_eps"]),
        latent=read_latent(fields, shape),
        mixture=read_mixture(
            fields, name="num_local_experts", experts=256, chosen=8, inner=1024, scale=2.446
        ),
        recurrent=read_recurrent(fields, layers),
        sparse=sparse_layers(fields, layers, 1),
    )


def _linear(fields: Fields) -> Fields:
    """In which published files describe KDA; transformers' own have no such block."""
    return fields.block("linear_attn_config")


def read_delta(fields: Fields, eps: float) -> KimiDeltaSpec:
    own = _linear(fields)
    taps = fields.count("linear_conv_kernel_dim", 4, low=2, high=64)
    return KimiDeltaSpec(
        heads=own.count("num_heads", fields.count("linear_num_heads", 32, high=4096), high=4096),
        size=own.count("head_dim", fields.count("linear_head_dim", 128, high=4096), high=4096),
        taps=own.count("short_conv_kernel_size", taps, low=2, high=64),
        eps=eps,
    )


def read_latent(fields: Fields, shape: Mapping[str, Any]) -> LatentShape:
    content = fields.count("qk_nope_head_dim", 128, high=4096)
    position = fields.count("qk_rope_head_dim", 64, high=4096)
    return LatentShape(
        hidden=shape["hidden_size"],
        heads=shape["heads"],
        query_rank=fields.count("q_lora_rank", high=1 << 16) if fields.has("q_lora_rank") else None,
        rank=fields.count("kv_lora_rank", 512, high=1 << 16),
        content=content,
        position=position,
        value=fields.count("v_head_dim", 128, high=4096),
        scale=(content + position) ** -0.5,
        bias=fields.flag("attention_bias"),
    )


def read_recurrent(fields: Fields, layers: int) -> tuple[bool, ...]:
    words = "linear_attention", "full_attention"
    kinds = fields.words("layer_types", layers, words)
    if kinds is not None:
        return tuple(kind == "linear_attention" for kind in kinds)
    if _linear(fields).has("full_attn_layers"):  # counted from 1
        full = listed_layers(_linear(fields), "full_attn_layers", layers + 1) or ()
        return fields.settle("layer_types", words, (not attends for attends in full[1:]))
    return fields.settle("layer_types", words, (i == 0 or i % 4 != 0 for i in range(layers)))


def layout(config: Config) -> list[LayerSpec]:
    return [config.delta.memory if recurrent else config.latent.memory for recurrent in config.recurrent]


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)

    def mixer(recurrent: bool) -> Mixer:
        return (
            KimiDelta(config.hidden_size, config.delta) if recurrent else LatentAttention(config.latent, None)
        )

    layers = [
        PreNorm(mixer(recurrent), feed_forward(config, sparse=sparse), norm)
        for recurrent, sparse in zip(config.recurrent, config.sparse, strict=True)
    ]
    return CausalLM(config, layers, norm())


_RENAMED = (
    (".block_sparse_moe.", ".mlp."),
    (".w1.", ".gate_proj."),
    (".w2.", ".down_proj."),
    (".w3.", ".up_proj."),
    (".self_attn.forget_gate.", ".self_attn."),
)
MATRICES = tuple(f".self_attn.{part}_proj." for part in "qkv")
_JOINED = (
    (MATRICES, ".self_attn.qkv_proj."),
    (tuple(f".self_attn.{part}_conv1d." for part in "qkv"), ".self_attn.conv1d."),
    (tuple(f".self_attn.{part}_conv.conv." for part in "qkv"), ".self_attn.conv1d."),
)


def adapt(config: Any, weights: Weights) -> Weights:
    """Queries, keys and values of KDA joined; latent heads apart; experts stacked; filters to MLX's axis
    order.
    """
    named: Weights = {}
    for name, array in without_spares(config, weights).items():
        for old, new in _RENAMED:
            name = name.replace(old, new)
        if name.endswith(".A_log"):
            array = array.reshape(1, 1, -1, 1)
        named[name] = array
    for parts, whole in _JOINED:
        named = joined_rows(named, parts, whole)
    return split_latent_heads(to_switch(with_filters(named), config.mixture.experts), config.latent)


def _second(raw: Mapping[str, Any]) -> str | None:
    """Kimi K3's text model, whose files have the same model_type."""
    return "kimi_k3" if raw.get("hidden_act") == "situ" else None


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=(*RATES, *CORRECTIONS),
    variant=_second,
    checkpoint=always(Checkpoint(rows=(alike(MATRICES),), joined=(MATRICES,))),
)
