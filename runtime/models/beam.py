"""Beam (Reflection): gated attention in layers that slide and turn, and in some that do neither; experts by
DeepSeek-V3's way without a shared one; each sublayer's answer weighs as much as all before it on average.

The stream x after n additions, the embedding counted, is y / sqrt(n) + x' sqrt((n - 1) / n): the sum of all,
over the root of their number. Here it is the sum itself; norms, which are all that read it, take the same of
it where their epsilon grows by n. Queries of layers without positions grow with their place.

Source: transformers modeling_beam.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, read_shape, read_softcap, rope_of_kind
from runtime.config.expert_groups import read_groups
from runtime.config.fields import Fields
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.activation import sigmoid
from runtime.nn.attention.gated_attention import OpenedAttention
from runtime.nn.layer import Layer
from runtime.nn.norm import Normalize, RMSNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.block import Sandwich
from runtime.parts.decoder import DecoderParts
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, Trunk, attention_layout, head_norms, layer_ropes
from runtime.trunks.mixture import MixtureConfig, MixtureSpec, feed_forward


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    bias: bool
    """On attention's projections; its gate has one of its own."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    softcap: float | None
    """Of the logits."""


_KINDS = "full_attention", "sliding_attention"
_ROPES: dict[str, Any] = {
    "full_attention": None,
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
"""What transformers takes where a file has none."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("beam",))
    shape = read_shape(
        fields,
        vocab_size=151936,
        hidden_size=5120,
        intermediate_size=20480,
        num_attention_heads=48,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=8192,
    )
    layers = layer_count(fields, 52)
    sliding = _sliding(fields, layers)
    ropes = {kind: _rope(fields, shape, kind) for kind in _KINDS if (kind == _KINDS[1]) in sliding}
    window = fields.count("sliding_window", 512)
    return Config(
        **shape,
        windows=tuple(window if one else None for one in sliding),
        ropes=tuple(ropes[_KINDS[one]] for one in sliding),
        bias=fields.flag("attention_bias"),
        sparse=_sparse(fields, layers),
        mixture=_mixture(fields),
        softcap=read_softcap(fields, "final_logit_softcapping", 30.0),
    )


def _sliding(fields: Fields, layers: int) -> tuple[bool, ...]:
    kinds = fields.words("layer_types", layers, _KINDS)
    if kinds is not None:
        return tuple(kind == _KINDS[1] for kind in kinds)
    full = ((i + 1) % 6 == 0 or i == layers - 1 for i in range(layers))
    return tuple(not one for one in fields.settle("layer_types", _KINDS, full))


def _rope(fields: Fields, shape: dict[str, Any], kind: str) -> RopeSpec | None:
    """A block for each kind of layer; a null in its place: layers of that kind leave positions out."""
    for name in ("rope_theta", "partial_rotary_factor"):
        if fields.has(name):
            fields.refuse(name, "none: here rope_parameters has a block for each type of layer")
    blocks = fields.raw["rope_parameters"] if fields.has("rope_parameters") else _ROPES
    if not isinstance(blocks, Mapping) or kind not in blocks:
        fields.refuse("rope_parameters", f"a block, or null, for {kind}")
    if blocks[kind] is None:
        return None
    sizes = {"head_dim": shape["head_dim"], "max_positions": shape["context_length"]}
    return rope_of_kind(fields, kind, _ROPES, **sizes)


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Without a list the first three layers are dense."""
    kinds = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    return tuple(i >= 3 if kinds is None else kinds[i] == "sparse" for i in range(layers))


def _mixture(fields: Fields) -> MixtureSpec:
    experts = fields.count("num_experts", 256, high=1 << 16)
    chosen = fields.count("num_experts_per_tok", 8, high=experts)
    groups, opened = read_groups(fields, experts, chosen, default=8, open_by_default=4)
    return MixtureSpec(
        experts,
        chosen,
        fields.count("moe_intermediate_size", 2560, high=1 << 22),
        groups=groups,
        top_groups=opened,
        normalize=fields.flag("norm_topk_prob", True),
        scale=fields.number("routed_scaling_factor", 2.5),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Attention(OpenedAttention):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        gates = config.heads * config.head_dim
        super().__init__(
            config,
            rope,
            head_norms(config),
            gates,
            sigmoid,
            called="gate_proj",
            bias=config.bias,
            gate_bias=True,
        )

    def factors(self, step: Step) -> mx.array | None:
        if self._rope is not None:
            return None
        return step.memo("Beam's factors", lambda: mx.exp(0.1 * mx.log1p((step.positions + 1) / 2048)))


class Block(Sandwich):
    def __init__(self, config: Config, rope: Rope | None, place: int, *, sparse: bool) -> None:
        added = 2 * place + 1
        norms = iter([_norm(config, added), _norm(config), _norm(config, added + 1), _norm(config)])
        mlp = feed_forward(config, sparse=sparse)
        super().__init__(Attention(config, rope), mlp, lambda: next(norms))


def _norm(config: Config, added: int = 1) -> Normalize:
    """Of the stream after so many additions."""
    return RMSNorm(config.hidden_size, eps=added * config.norm_eps)


class SummedTrunk(Trunk):
    """Others are shown the stream as it is to transformers."""

    def note(self, layer: int, state: mx.array, step: Step) -> None:
        last = layer == len(self.layers) - 1  # behind the norm
        super().note(layer, state if last else state * (2 * layer + 3) ** -0.5, step)


class Beam(CausalLM):
    def __init__(self, config: Config, layers: Sequence[Layer]) -> None:
        norm = _norm(config, 2 * len(layers) + 1)
        super().__init__(config, layers, norm, logit_softcap=config.softcap, trunk=SummedTrunk)

    def decoder_parts(self) -> DecoderParts | None:
        return None if self.trunk.is_tapped else self.decodes()


def build(config: Config) -> Beam:
    layers = [
        Block(config, rope, place, sparse=sparse)
        for place, (rope, sparse) in enumerate(zip(layer_ropes(config), config.sparse, strict=True))
    ]
    return Beam(config, layers)


def adapt(config: Config, weights: Weights) -> Weights:
    """A head's one bias of its gates becomes one for each of them."""
    named: Weights = {}
    for name, array in without_spares(config, weights).items():
        if name.endswith(".self_attn.gate_bias"):
            name = f"{name.removesuffix('_bias')}_proj.bias"
            array = mx.repeat(array, config.head_dim)
        named[name] = array
    return to_switch(named, config.mixture.experts)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=(*CORRECTIONS, ".mlp.gate.weight"),
)
