"""ERNIE 4.5, dense and with experts: a Llama that rotates neighbouring pairs.

Experts are routed by a softmax over all of them. A stored correction moves the choice and not the weights,
which are scaled to sum to one. Which layers are mixtures is a first, a last and an interval. Draft heads in
published files (`model.mtp_*`) are left out.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.cpu.stated import Routing
from runtime.errors import UnsupportedModel
from runtime.models.checkpoint import Checkpoint, always
from runtime.models.config import Fields
from runtime.models.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms
from runtime.models.decoder_config import DecoderConfig, layer_count, one_rope, read_shape
from runtime.models.experts import Weights, to_switch
from runtime.models.family import CORRECTIONS, Family
from runtime.models.tensor_names import without_spares
from runtime.nn.block import PreNorm
from runtime.nn.layer import FeedForward
from runtime.nn.route import RuledRouter
from runtime.nn.self_attention import SelfAttention
from runtime.nn.sparse import SharedMoE
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Mixture:
    """Routed experts, and the shared ones beside them."""

    experts: int
    chosen: int
    """Experts asked per token."""
    inner: int
    """Size of an expert."""
    shared: int
    """Size of the shared experts together; 0: none."""
    least: float
    """What the sum that weights are divided by is at least."""


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    """Of all projections but the routed experts'; of the head too where there is a mixture."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    mixture: Mixture | None
    """None: all layers have plain MLPs."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    mixed = fields.choice("model_type", ("ernie4_5", "ernie4_5_moe")) == "ernie4_5_moe"
    shape = read_shape(
        fields if mixed or fields.has("head_dim") else Fields({**fields.raw, "head_dim": 128}),
        eps=1e-5,
        tied=True,
        num_key_value_heads=4 if mixed else 2,
        max_position_embeddings=131072,
    )
    layers = layer_count(fields)
    bias = fields.flag("use_bias")
    if fields.number("compression_ratio", 1.0) != 1.0:
        raise UnsupportedModel(
            "config.json: compression_ratio is not 1, and positions are not compressed here"
        )
    if bias and mixed and shape["tied"]:
        raise UnsupportedModel("config.json: use_bias is true, and a tied head has no bias here")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, theta=500000.0, traditional=True),) * layers,
        bias=bias,
        sparse=_sparse(fields, layers) if mixed else (False,) * layers,
        mixture=_mixture(fields) if mixed else None,
    )


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    start, stop = (
        fields.count("moe_layer_start_index", 1, low=0),
        fields.count("moe_layer_end_index", -1, low=-1),
    )
    every = fields.count("moe_layer_interval", 1)
    last = layers - 1 if stop == -1 else stop
    return tuple((i + 1) % every == 0 and start <= i <= last for i in range(layers))


def _mixture(fields: Fields) -> Mixture:
    fields.choice("moe_gate_act", ("softmax",), "softmax")
    experts = fields.count("moe_num_experts", fields.count("num_experts", 64), high=1 << 16)
    inner = fields.count("moe_intermediate_size", 1536, high=1 << 22)
    return Mixture(
        experts=experts,
        chosen=fields.count("moe_k", fields.count("num_experts_per_tok", 6), high=experts),
        inner=inner,
        shared=inner * fields.count("moe_num_shared_experts", 2, low=0, high=1 << 10),
        least=fields.number("moe_norm_min", 1e-12, low=1e-30),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class SharedExperts(SharedMoE):
    """The routed experts have no biases; the shared ones have them where the model has."""

    def __init__(self, config: Config, spec: Mixture) -> None:
        routing = Routing("softmax", spec.chosen, normalize=True, least=spec.least)
        super().__init__(
            config.hidden_size,
            spec.inner,
            spec.experts,
            RuledRouter(config.hidden_size, spec.experts, routing, corrected=True),
            shared=0,
            activation=config.activation,
        )
        if spec.shared:
            self.shared_experts = gated_mlp(config, bias=config.bias, inner=spec.shared)


def build(config: Config) -> CausalLM:
    norm, bias = rms_norms(config), config.bias

    def mlp(sparse: bool) -> FeedForward:
        if sparse and config.mixture is not None:
            return SharedExperts(config, config.mixture)
        return gated_mlp(config, bias=bias)

    layers = [
        PreNorm(SelfAttention(config, rope, qkv_bias=bias, output_bias=bias), mlp(sparse), norm)
        for rope, sparse in zip(layer_ropes(config), config.sparse, strict=True)
    ]
    return CausalLM(config, layers, norm(), head_bias=bias and config.mixture is not None)


_STATICS = (".mlp.gate.moe_statics.", ".mlp.moe_statics.")


def adapt(config: Config, weights: Weights) -> Weights:
    """Corrections are stored as [1, E], beside the gate or in it."""
    kept: Weights = {}
    for name, array in without_spares(config, weights).items():
        for statics in _STATICS:
            name = name.replace(statics, ".mlp.gate.")
        kept[name] = array.reshape(-1) if name.endswith(".e_score_correction_bias") else array
    return kept if config.mixture is None else to_switch(kept, config.mixture.experts)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # Gates and corrections are float32 in published files and in the reference.
    wide=(*CORRECTIONS, ".mlp.gate.weight"),
    checkpoint=always(Checkpoint(heads=("mtp_",))),
)
