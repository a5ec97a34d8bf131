"""ERNIE 4.5, dense and with experts: a Llama that rotates neighbouring pairs.

Experts are routed by a softmax over all of them. A stored correction moves the choice and not the weights,
which are scaled to sum to one. Which layers are mixtures is a first, a last and an interval. Draft heads in
published files (`model.mtp_*`) are left out.

The text model of ERNIE 4.5 VL is the same with a word for each layer, and no bias of its head. Beside the
experts for text, which are the first half of those in files, stand others for images, which are left out; a
router's scores are the columns of its matrix there, and corrections a row for text and one for images.
"""

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.moe import SharedMoE
from runtime.nn.feed_forward.router import RuledRouter
from runtime.nn.layer import FeedForward
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.block import PreNorm
from runtime.parts.feed_forward import Routing
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms


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
    """Of all projections but the routed experts'."""
    head_bias: bool
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    mixture: Mixture | None
    """None: all layers have plain MLPs."""


_KINDS = ("ernie4_5", "ernie4_5_moe", "ernie4_5_vl_moe_text")


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    kind = fields.choice("model_type", _KINDS)
    mixed, seeing = kind != "ernie4_5", kind == "ernie4_5_vl_moe_text"
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
    if bias and kind == "ernie4_5_moe" and shape["tied"]:
        raise UnsupportedModel("config.json: use_bias is true, and a tied head has no bias here")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(_rope(fields, shape, seeing),) * layers,
        bias=bias,
        head_bias=bias and kind == "ernie4_5_moe",
        sparse=_kinds(fields, layers) if seeing else _sparse(fields, layers) if mixed else (False,) * layers,
        mixture=_mixture(fields, seeing) if mixed else None,
    )


def _rope(fields: Fields, shape: dict[str, Any], seeing: bool) -> RopeSpec:
    """Of several axes, which count alike for text, transformers computes the plain rotation alone."""
    kind = fields.rope_parameters(theta=500000.0).get("rope_type", "default")
    if seeing and kind != "default":
        raise UnsupportedModel(f"config.json: rope_type is {quoted(kind)}, and only default is computed here")
    return one_rope(fields, shape, theta=500000.0, traditional=True)


def _kinds(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Of ERNIE 4.5 VL's layers."""
    words = ("dense", "sparse")
    kinds = fields.words("mlp_layer_types", layers, words)
    if kinds is None:
        kinds = fields.take("mlp_layer_types", [words[i > 0] for i in range(layers)])
    return tuple(kind == "sparse" for kind in kinds)


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    start, stop = (
        fields.count("moe_layer_start_index", 1, low=0),
        fields.count("moe_layer_end_index", -1, low=-1),
    )
    every = fields.count("moe_layer_interval", 1)
    last = layers - 1 if stop == -1 else stop
    return tuple((i + 1) % every == 0 and start <= i <= last for i in range(layers))


def _mixture(fields: Fields, seeing: bool) -> Mixture:
    fields.choice("moe_gate_act", ("softmax",), "softmax")
    experts = fields.count("moe_num_experts", fields.count("num_experts", 64), high=1 << 16)
    inner = _inner(fields) if seeing else fields.count("moe_intermediate_size", 1536, high=1 << 22)
    return Mixture(
        experts=experts,
        chosen=fields.count("moe_k", fields.count("num_experts_per_tok", 6), high=experts),
        inner=inner,
        shared=inner * fields.count("moe_num_shared_experts", 2, low=0, high=1 << 10),
        least=fields.number("moe_norm_min", 1e-12, low=1e-30),
    )


def _inner(fields: Fields) -> int:
    """The size of an expert for text; behind it stands that of one for images."""
    sizes = fields.take("moe_intermediate_size", [1536, 512])
    if not isinstance(sizes, list | tuple) or len(sizes) != 2:
        fields.refuse("moe_intermediate_size", "two sizes, of experts for text and for images")
    return Fields({"moe_intermediate_size": sizes[0]}).count("moe_intermediate_size", high=1 << 22)


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
    return CausalLM(config, layers, norm(), head_bias=config.head_bias)


_STATICS = (".mlp.text_moe.gate.moe_statics.", ".mlp.gate.moe_statics.", ".mlp.moe_statics.")
_STACKS = ((".text_moe.experts.", ".experts."),)
_MODULES = ((".mlp.experts.", ".mlp.text_moe.experts."), (".mlp.gate.", ".mlp.text_moe.gate."))
_FOR_IMAGES = (".mlp.vision_moe.", ".mlp.gate.weight_1")
_EXPERT = re.compile(r".*\.mlp\.experts\.(\d{1,6})\..*", re.ASCII)


def adapt(config: Config, weights: Weights) -> Weights:
    """Corrections are stored as [1, E], beside the gate or in it; with those for images as [2, E]."""
    mixture = config.mixture
    if mixture is None:
        return without_spares(config, weights)
    kept: Weights = {}
    for name, array in without_spares(config, weights).items():
        if is_for_images(name, mixture.experts):
            continue
        for theirs in _STATICS:
            name = name.replace(theirs, ".mlp.gate.")
        name = name.replace(".mlp.text_moe.", ".mlp.")
        kept[name] = _turned(name, array, mixture.experts)
    return to_switch(kept, mixture.experts)


def is_for_images(name: str, experts: int) -> bool:
    """Is this tensor one of ERNIE 4.5 VL's that no text meets? experts: how many are for text."""
    one = _EXPERT.fullmatch(name)
    return any(part in name for part in _FOR_IMAGES) or (one is not None and int(one[1]) >= experts)


def _turned(name: str, array: mx.array, experts: int) -> mx.array:
    """Routers [E, D] and corrections [E]."""
    if name.endswith(".e_score_correction_bias"):
        return array.reshape(-1, experts)[0] if array.ndim == 2 else array
    if name.endswith(".mlp.gate.weight") and array.shape[0] != experts:
        return array.swapaxes(0, 1)
    return array


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    if not isinstance(config.get("moe_intermediate_size"), list):
        return Checkpoint(heads=("mtp_",))
    told = config.get("moe_num_experts", config.get("num_experts", 64))
    experts = told[0] if isinstance(told, list) and told else told
    spare = _spare(experts if type(experts) is int else 64)
    return Checkpoint(stacks=_STACKS, modules=_MODULES, spare=spare, heads=("mtp_",))


def _spare(experts: int) -> tuple[str, ...]:
    """How names of what is for images end."""
    own = (f"{i}.{part}_proj.weight" for i in range(experts, 2 * experts) for part in ("gate", "up", "down"))
    gate = ("gate.weight", "gate.moe_statics.e_score_correction_bias")
    return (
        *(f".mlp.experts.{one}" for one in own),
        *(f".mlp.vision_moe.{one}" for one in (*gate, "experts.gate_up_proj", "experts.down_proj")),
        ".mlp.gate.weight_1",
    )


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # Gates and corrections are float32 in published files and in the reference.
    wide=(*CORRECTIONS, ".mlp.gate.weight"),
    checkpoint=_checkpoint,
)
