"""Apertus: a Llama with norms on query and key heads, and an MLP without gate whose activation is learned
(xIELU). The text of Apertus 1.5 is the same with a longer table, for codes of images and sound; its head may
leave those out, which are never drawn then.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import StepCache
from runtime.config.decoder import DecoderConfig, layer_count, own_rope, read_shape
from runtime.config.fields import Fields, whole_heads
from runtime.models.family import Family
from runtime.nn.activation import XIELU
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.feed_forward.mlp import ACTIVATIONS, MLP
from runtime.nn.norm import Normalize
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import added
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.names import text_tensors
from runtime.trunks.decoder import CausalLM, attention_layout, head_norms, layer_ropes, rms_norms
from runtime.trunks.pruned import Pruned

_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 12e6,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    drawn: int
    """So many ids, from the first on, have a row in the head."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    known = ("xielu", *ACTIVATIONS)
    fields.choice("model_type", ("apertus", "apertus1p5_text"))
    shape = read_shape(fields, eps=1e-5, activation="xielu", activations=known, max_position_embeddings=65536)
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(_rope(fields, shape),) * layers,
        bias=fields.flag("attention_bias"),
        drawn=_drawn(fields, shape),
    )


def _drawn(fields: Fields, shape: dict[str, Any]) -> int:
    """Apertus 1 has no such field."""
    every = shape["vocab_size"]
    if fields.raw.get("model_type") == "apertus" or not fields.has("output_vocab_size"):
        return every
    drawn = fields.count("output_vocab_size", high=every)
    if shape["tied"] and drawn != every:
        fields.refuse("output_vocab_size", f"vocab_size, {every}, where the head is the embedding")
    return drawn


def _rope(fields: Fields, shape: dict[str, Any]) -> RopeSpec:
    parameters = whole_heads(own_rope(fields, _ROPE, theta=12e6))
    return read_rope(parameters, head_dim=shape["head_dim"], max_positions=shape["context_length"])


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Block(Sublayers):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__()
        bias, norm = config.bias, rms_norms(config)
        self.self_attn = HeadNormAttention(config, rope, head_norms(config), qkv_bias=bias, output_bias=bias)
        self.mlp = MLP(config.hidden_size, config.intermediate_size, _activation(config))
        self.attention_layernorm: Normalize = norm()
        self.feedforward_layernorm: Normalize = norm()

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self.self_attn, step, cache, norm=self.attention_layernorm)
        return added(x, self.mlp, step, norm=self.feedforward_layernorm)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        return (self.self_attn, self.attention_layernorm, None), (self.mlp, self.feedforward_layernorm, None)


def _activation(config: Config) -> Any:
    return XIELU() if config.activation == "xielu" else ACTIVATIONS[config.activation]


def build(config: Config) -> CausalLM:
    layers = [Block(config, rope) for rope in layer_ropes(config)]
    if config.drawn != config.vocab_size:
        return Pruned(config, layers, config.drawn)
    return CausalLM(config, layers, rms_norms(config)())


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=text_tensors,
    # The activation's numbers are few and sit in exponents.
    wide=(".act_fn.alpha_p", ".act_fn.alpha_n", ".act_fn.beta", ".act_fn.eps"),
)
