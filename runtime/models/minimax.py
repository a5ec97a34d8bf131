"""MiniMax-Text-01 and M1: lightning attention, softmax attention every few layers, and experts everywhere.

What leaves a norm is also what sublayers add to, each side by a factor of its own. How much of a head is
rotated is `rotary_dim` in published files, as in those of M2; transformers 5.24 does not look at it and
rotates whole heads, as the weights of such files were not trained. The files that came with code of their own
(minimax_text_01, minimax_m1) have other names for the factors, and `attn_type_list` for the kinds of layers.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import StepCache
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields, whole_heads
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.moe import SoftmaxMoE
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.recurrent.lightning import LightningAttention, LightningSpec, slopes_of
from runtime.nn.residual.block import PreNorm
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import MODULES, Weights, numbered_names, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms

_EARLY = ("minimax_text_01", "minimax_m1")
"""Types of models whose files came with code of their own."""
_KINDS = ("full_attention", "linear_attention")

Factors = tuple[float, float]
"""Of what enters a sublayer, and of its answer."""


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    lightning: tuple[bool, ...]
    """Of each layer: its attention is linear; else softmax."""
    experts: int
    chosen: int
    """Experts per token."""
    full_factors: Factors
    """Around softmax attention."""
    linear_factors: Factors
    """Around lightning attention."""
    mlp_factors: Factors
    """Around the experts."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(
        fields,
        eps=1e-5,
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131072,
    )
    kinds = _kinds(fields)
    _refuse_unknown(fields, kinds)
    window = fields.count("sliding_window") if fields.has("sliding_window") else None
    experts = fields.count("num_local_experts", 8, high=1 << 16)
    lightning = tuple(kind == "linear_attention" for kind in kinds)
    rope = _rope(fields, shape)
    return Config(
        **shape,
        windows=tuple(None if linear else window for linear in lightning),
        ropes=tuple(None if linear else rope for linear in lightning),
        lightning=lightning,
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 2, high=experts),
        full_factors=_factors(fields, "full_attn"),
        linear_factors=_factors(fields, "linear_attn"),
        mlp_factors=_factors(fields, "mlp"),
    )


def _kinds(fields: Fields) -> tuple[str, ...]:
    layers = layer_count(fields, 32)
    kinds = fields.words("layer_types", layers, _KINDS)
    if kinds is not None:
        return kinds
    early = fields.raw.get("model_type") in _EARLY
    full = _softmax_layers(fields, layers) if early else (i % 2 == 0 for i in range(layers))
    return tuple(_KINDS[not one] for one in fields.settle("layer_types", _KINDS, full))


def _softmax_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Which layers have softmax attention; the others' is lightning."""
    full = fields.switches("attn_type_list", layers)
    if full is None:
        fields.refuse("attn_type_list", f"{layers} times 0 for lightning or 1 for softmax attention")
    return full


def _refuse_unknown(fields: Fields, kinds: tuple[str, ...]) -> None:
    """What the code that came with the first files could do besides, and no published model does."""
    fields.count("shared_intermediate_size", 0, low=0, high=0)
    if not fields.flag("postnorm", fields.raw.get("model_type") not in _EARLY):
        fields.refuse("postnorm", "true: sublayers add to what leaves their norms")
    listed = fields.raw.get("attn_type_list")
    if listed is not None and listed != [int(kind == "full_attention") for kind in kinds]:
        raise UnsupportedModel(
            f"config.json: attn_type_list is {quoted(listed)}, which is not what layer_types says"
        )


def _rope(fields: Fields, shape: dict[str, Any]) -> RopeSpec:
    size = shape["head_dim"]
    share = fields.count("rotary_dim", size, high=size) / size
    parameters = whole_heads(fields.rope_parameters(theta=1e6), "this family goes by rotary_dim and else")
    return read_rope(parameters, head_dim=size, max_positions=shape["context_length"], partial=share)


def _factors(fields: Fields, of: str) -> Factors:
    return fields.number(f"{of}_alpha_factor", 1.0), fields.number(f"{of}_beta_factor", 1.0)


def layout(config: Config) -> list[LayerSpec]:
    linear, attention = _spec(config).memory, attention_layout(config)
    return [linear if own else full for own, full in zip(config.lightning, attention, strict=True)]


def _spec(config: Config) -> LightningSpec:
    return LightningSpec(config.hidden_size, config.heads, config.head_dim, config.activation)


class Block(PreNorm):
    def __init__(self, config: Config, rope: Rope | None, place: int) -> None:
        linear = config.lightning[place]
        slopes = slopes_of(config.heads, place, config.layers)
        experts = SoftmaxMoE(
            config.hidden_size,
            config.intermediate_size,
            config.experts,
            config.chosen,
            normalize=True,
            activation=config.activation,
        )
        mixer = LightningAttention(_spec(config), slopes) if linear else SelfAttention(config, rope)
        super().__init__(mixer, experts, rms_norms(config))
        self._around = config.linear_factors if linear else config.full_factors
        self._around_mlp = config.mlp_factors

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = self.input_layernorm(x)
        x = _sum(self._around, x, self.self_attn(x, step, cache))
        x = self.post_attention_layernorm(x)
        return _sum(self._around_mlp, x, self.mlp(x, step))


def _sum(factors: Factors, x: mx.array, y: mx.array) -> mx.array:
    return x * factors[0] + y * factors[1]


def build(config: Config) -> CausalLM:
    layers = [Block(config, rope, place) for place, rope in enumerate(layer_ropes(config))]
    return CausalLM(config, layers, rms_norms(config)())


_COMPUTED = (".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay")
"""Follows from the config, and is stored by transformers all the same."""


def adapt(config: Config, weights: Weights) -> Weights:
    """Files have Mixtral's names."""
    return to_switch(numbered_names(without_spares(config, weights)), config.experts)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(spare=_COMPUTED, modules=MODULES)),
)
