"""GPT-OSS: sliding and full attention in turn, a sink per head, experts with biases under a clipped SwiGLU.

A sink is a logit that takes part in the softmax and stands for no key, so that a head may look at nothing.
The experts' weights come packed as MXFP4: as MLX names them, or as released (`_blocks`, `_scales`, with the
rows of gate and up in turn), or as floats stored input first.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_shape, read_windows
from runtime.config.fields import Fields, whole_heads
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.router import choose
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.positions.rope_spec import read_rope
from runtime.nn.residual.block import PreNorm
from runtime.nn.residual.sublayer import mixture_parts
from runtime.parts.feed_forward import MixtureParts, Routing
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms

_YARN = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    """Of the attention's projections, that of its output too."""
    experts: int
    chosen: int
    """Experts asked per token."""
    alpha: float
    """Of the clipped SwiGLU: gates are multiplied by it inside the sigmoid."""
    limit: float
    """Of the clipped SwiGLU: gates are at most this, what they multiply is within it on both sides."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, eps=1e-5, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072)
    layers = layer_count(fields, 36)
    block = whole_heads(fields.rope_parameters(theta=150000.0))
    if not fields.has("rope_parameters") and not fields.has("rope_scaling"):
        block = {**block, **_YARN}
        fields.take("rope_parameters", block)
    rope = read_rope(block, head_dim=shape["head_dim"], max_positions=shape["context_length"])
    experts = fields.count("num_local_experts", 128, high=1 << 16)
    return Config(
        **shape,
        windows=read_windows(fields, layers, full_every=2, window=fields.count("sliding_window", 128)),
        ropes=(rope,) * layers,
        bias=fields.flag("attention_bias", True),
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 4, high=experts),
        alpha=fields.number("swiglu_alpha", 1.702),
        limit=fields.number("swiglu_limit", 7.0, low=0.0),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class SparseMLP(Module):
    adds: ClassVar[tuple[str, ...]] = ("experts",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.router = nn.Linear(config.hidden_size, config.experts)
        self.experts = Experts(
            config.hidden_size,
            config.intermediate_size,
            config.experts,
            bias=True,
            clip=(config.limit, config.alpha),
        )
        self._routing = Routing("best", config.chosen)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return self.experts(x, choose(self._routing, linear(self.router, x, step)), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> MixtureParts | None:
        """See `sublayer.added`."""
        return mixture_parts(norm, self.router, self._routing, self.experts, after)


def build(config: Config) -> CausalLM:
    norm, bias = rms_norms(config), config.bias
    attentions = [
        SelfAttention(config, rope, qkv_bias=bias, output_bias=bias, sinks=True)
        for rope in layer_ropes(config)
    ]
    layers = [PreNorm(attention, SparseMLP(config), norm) for attention in attentions]
    return CausalLM(config, layers, norm())


_RELEASED = re.compile(r"(.*\.mlp\.experts)\.(gate_up_proj|down_proj)(|_bias|_blocks|_scales)")
_LEAVES = {"": "weight", "_bias": "bias", "_blocks": "weight", "_scales": "scales"}


def adapt(config: Config, weights: Weights) -> Weights:
    adapted: Weights = {}
    for name, array in without_spares(config, weights).items():
        found = _RELEASED.fullmatch(name)
        if found is None:
            adapted[name] = array
            continue
        experts, matrix, ending = found.groups()
        leaf, array = _LEAVES[ending], _output_first(ending, array)
        if matrix == "down_proj":
            adapted[f"{experts}.down_proj.{leaf}"] = array
        else:
            adapted[f"{experts}.gate_proj.{leaf}"] = array[:, ::2]
            adapted[f"{experts}.up_proj.{leaf}"] = array[:, 1::2]
    return adapted


def _output_first(ending: str, array: mx.array) -> mx.array:
    """A released tensor with rows of the matrix along its second axis, codes eight to a word."""
    if ending == "" and array.ndim == 3:
        return array.swapaxes(1, 2)
    if ending == "_blocks" and array.ndim == 4 and array.dtype == mx.uint8:
        return array.view(mx.uint32).flatten(-2)
    return array


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(experts="experts", alternate=True)),
)
