"""ModernBERT's decoder (Ettin): its layers looking back alone, and the head of its masked language model.

Layers that slide see half of `local_attention` tokens. What leaves the last norm goes through a matrix, an
activation and a norm before the table of embeddings. Sources: arXiv 2507.11412; transformers
modeling_modernbert_decoder.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import StepCache
from runtime.config.decoder import DecoderConfig, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.models.modernbert import (
    SLIDING,
    half_of_window,
    kinds_of_layers,
    refuse_head_dim,
    ropes_of_kinds,
)
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.mlp import ACTIVATIONS, FusedGatedMLP
from runtime.nn.layer import Layer
from runtime.nn.linear import linear
from runtime.nn.norm import LayerNorm, Norm, Normalize
from runtime.nn.residual.block import NormedSublayer, PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, Trunk, attention_layout, layer_ropes


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    norm_bias: bool
    attention_bias: bool
    head_bias: bool
    """Logits have a bias."""
    dense_bias: bool
    """The matrix before the table has one."""
    head_activation: str


_SHAPE: dict[str, Any] = {
    "vocab_size": 50368,
    "hidden_size": 768,
    "intermediate_size": 1152,
    "num_attention_heads": 12,
    "max_position_embeddings": 8192,
    "eps_field": "norm_eps",
    "eps": 1e-5,
    "activation_field": "hidden_activation",
    "activation": "gelu",
    "tied": True,
}


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("modernbert-decoder",))
    fields.only({"mlp_bias": False})
    own = {name: value for name, value in fields.raw.items() if name != "num_key_value_heads"}
    shape = read_shape(Fields(own), **_SHAPE)
    if shape["hidden_size"] % shape["heads"]:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads, {shape['heads']}")
    refuse_head_dim(fields, shape["hidden_size"] // shape["heads"])
    kinds = kinds_of_layers(fields)
    window = half_of_window(fields, kinds)
    ropes = ropes_of_kinds(fields, shape["head_dim"], shape["context_length"])
    return Config(
        **shape,
        windows=tuple(window if kind == SLIDING else None for kind in kinds),
        ropes=tuple(ropes[kind] for kind in kinds),
        norm_bias=fields.flag("norm_bias"),
        attention_bias=fields.flag("attention_bias"),
        head_bias=fields.flag("decoder_bias", True),
        dense_bias=fields.flag("classifier_bias"),
        head_activation=fields.choice("classifier_activation", tuple(ACTIVATIONS), "gelu"),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def _norms(config: DecoderConfig) -> Norm:
    assert isinstance(config, Config)
    return lambda: LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.norm_bias)


class First(PreNorm):
    """The embeddings were normed."""

    def __init__(self, attention: SelfAttention, mlp: FusedGatedMLP, norm: Norm) -> None:
        super().__init__(attention, mlp, norm)
        del self.input_layernorm

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = x + self.self_attn(x, step, cache)
        return x + self.mlp(self.post_attention_layernorm(x), step)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        return (self.self_attn, None, None), (self.mlp, self.post_attention_layernorm, None)


class NormedTrunk(Trunk):
    def __init__(
        self, config: DecoderConfig, layers: Sequence[Layer], norm: Normalize, embed_scale: float | None
    ) -> None:
        super().__init__(config, layers, norm, embed_scale)
        self.embed_norm = _norms(config)()

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return self.embed_norm(super().embed(ids, step))


class ModernBertDecoder(CausalLM):
    def __init__(self, config: Config, layers: Sequence[Layer]) -> None:
        norm, hidden = _norms(config), config.hidden_size
        super().__init__(config, layers, norm(), trunk=NormedTrunk)
        self.head_dense = nn.Linear(hidden, hidden, bias=config.dense_bias)
        self.head_norm = norm()
        if config.head_bias:
            self.head_bias = mx.zeros((config.vocab_size,))
        self._activation = ACTIVATIONS[config.head_activation]

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        inner = self.head_norm(self._activation(linear(self.head_dense, hidden, step)))
        logits = super().logits(inner, step)
        return logits + self.head_bias if "head_bias" in self else logits


def build(config: Config) -> ModernBertDecoder:
    norm, bias = _norms(config), config.attention_bias
    layers: list[Layer] = []
    for rope in layer_ropes(config):
        attention = SelfAttention(config, rope, qkv_bias=bias, output_bias=bias)
        mlp = FusedGatedMLP(config.hidden_size, config.intermediate_size, activation=config.activation)
        layers.append((PreNorm if layers else First)(attention, mlp, norm))
    return ModernBertDecoder(config, layers)


_NAMES = (
    ("lm_head.dense.", "head_dense."),
    ("lm_head.norm.", "head_norm."),
    ("decoder.biases", "lm_head.biases"),  # of a packed one
    ("decoder.scales", "lm_head.scales"),
    ("decoder.bias", "head_bias"),
    ("decoder.weight", "lm_head.weight"),
    ("model.embeddings.tok_embeddings.", "model.embed_tokens."),
    ("model.embeddings.norm.", "model.embed_norm."),
    ("model.final_norm.", "model.norm."),
    (".attn.Wo.", ".self_attn.o_proj."),
    (".attn.", ".self_attn."),
    (".attn_norm.", ".input_layernorm."),
    (".mlp_norm.", ".post_attention_layernorm."),
    (".mlp.Wi.", ".mlp.gate_up_proj."),
    (".mlp.Wo.", ".mlp.down_proj."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return without_spares(config, respelled(weights, _NAMES))


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
