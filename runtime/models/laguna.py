"""Laguna: gated attention whose number of heads may change from layer to layer, over small experts.

Queries and keys are normed by head; sliding and full layers rotate by rules of their own; the answer of
each head (or each of its numbers) is multiplied by softplus of a gate. Experts are routed by corrected
sigmoids, with one more that always answers.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, listed_layers, read_shape
from runtime.config.fields import Fields
from runtime.config.rope_block import is_keyed, only_repeats
from runtime.errors import UnsupportedModel
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.activation import softplus
from runtime.nn.attention.gated_attention import OpenedAttention
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import PreNorm
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import text_tensors
from runtime.tensors.quantizing import (
    EIGHT,
    EIGHT_ELSE,
    REQUESTED,
    SOURCE,
    Offer,
    Request,
    Row,
    Tensor,
    is_head,
    is_table,
    more_bits,
)
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import CausalLM, attention_layout, head_norms, layer_ropes, rms_norms
from runtime.trunks.mixture import MixtureConfig, MixtureSpec, feed_forward


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    layer_heads: tuple[int, ...]
    """Of each layer: its query heads."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    bias: bool
    by_head: bool
    """Attention's answer has one gate per head; else one per number."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, num_key_value_heads=8, head_dim=128, max_position_embeddings=131072)
    layers = layer_count(fields, 40)
    _refuse_unknown(fields)
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    kinds = kinds or fields.take("layer_types", ("full_attention",) * layers)
    window = fields.count("sliding_window", 512)
    ropes = {kind: layer_rope(fields, shape, kind) for kind in set(kinds)}
    experts = fields.count("num_experts", 256, high=1 << 16)
    return Config(
        **shape,
        windows=tuple(window if kind == "sliding_attention" else None for kind in kinds),
        ropes=tuple(ropes[kind] for kind in kinds),
        layer_heads=_layer_heads(fields, layers, shape),
        sparse=_sparse(fields, layers),
        bias=fields.flag("attention_bias"),
        by_head=gates(fields, shape) == shape["heads"],
        mixture=MixtureSpec(
            experts=experts,
            chosen=fields.count("num_experts_per_tok", 8, high=experts),
            inner=fields.count("moe_intermediate_size", 512, high=1 << 22),
            shared=fields.count("shared_expert_intermediate_size", 512, high=1 << 22),
            scale=fields.number("moe_routed_scaling_factor", 1.0),
        ),
    )


def gates(fields: Fields, shape: dict[str, Any]) -> int:
    """How many numbers per token scale the answer of attention: one per head, or one per number."""
    gating = fields.raw.get("gating", True)
    if gating not in (True, "per-head", "per-element"):
        raise UnsupportedModel(
            f"config.json: gating is {quoted(gating)}, expected true, per-head or per-element"
        )
    return shape["heads"] * (shape["head_dim"] if gating == "per-element" else 1)


def _refuse_unknown(fields: Fields) -> None:
    for name in ("moe_router_logit_softcapping", "moe_apply_router_weight_on_input"):
        if fields.raw.get(name):
            raise UnsupportedModel(f"config.json: {name} is set, which is not computed here")
    fields.choice("moe_router_score_func", ("sigmoid",), "sigmoid")


def _layer_heads(fields: Fields, layers: int, shape: dict[str, Any]) -> tuple[int, ...]:
    listed = fields.raw.get("num_attention_heads_per_layer") or [shape["heads"]] * layers
    good = isinstance(listed, list) and len(listed) == layers and all(type(n) is int for n in listed)
    if not good or any(not 0 < n <= 4096 or n % shape["kv_heads"] for n in listed):
        raise UnsupportedModel(
            f"config.json: num_attention_heads_per_layer should list {layers} multiples of "
            f"{shape['kv_heads']}; it is {quoted(listed)}"
        )
    return tuple(listed)


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    kinds = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    dense = listed_layers(fields, "mlp_only_layers", layers)
    return tuple(not is_dense for is_dense in dense) if dense else tuple(i > 0 for i in range(layers))


def layer_rope(fields: Fields, shape: dict[str, Any], kind: str) -> RopeSpec:
    """One block per kind of layer; older files put that of the sliding layers under a name of its own."""
    sliding = kind == "sliding_attention"
    if fields.has("rope_scaling") and not only_repeats(fields.raw):
        fields.refuse("rope_scaling", "none: here rope_parameters has a block for each type of layer")
    theta = 10000.0 if sliding else 500000.0
    if sliding and fields.has("swa_rope_parameters"):
        older = fields.raw["swa_rope_parameters"]
        block = Fields({"rope_parameters": older}, under="swa").rope_parameters(theta=theta)
    elif is_keyed(fields.raw):
        block = fields.rope_parameters(kind, theta=theta)
    elif fields.has("rope_parameters") or fields.has("rope_theta"):
        block = fields.rope_parameters(theta=theta)
    else:
        block = {
            "rope_theta": 10000.0 if sliding else 500000.0,
            "partial_rotary_factor": 1.0 if sliding else 0.5,
        }
    return read_rope(block, head_dim=shape["head_dim"], max_positions=shape["context_length"])


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def _attention(config: Config, rope: Rope | None, heads: int) -> OpenedAttention:
    gates = heads if config.by_head else heads * config.head_dim
    own, norm = replace(config, heads=heads), head_norms(config)
    return OpenedAttention(own, rope, norm, gates, softplus, bias=config.bias)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    kinds = zip(layer_ropes(config), config.layer_heads, config.sparse, strict=True)
    layers = [
        PreNorm(_attention(config, rope, heads), feed_forward(config, sparse=sparse), norm)
        for rope, heads, sparse in kinds
    ]
    return CausalLM(config, layers, norm())


_RENAMED = (
    (".mlp.experts.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"),
    (".mlp.shared_expert.", ".mlp.shared_experts."),
)


def adapt(config: Config, weights: Weights) -> Weights:
    adapted: Weights = {}
    for name, array in text_tensors(config, weights).items():
        for old, new in _RENAMED:
            name = name.replace(old, new)
        adapted[name] = array
    return to_switch(adapted, config.mixture.experts)


def _laguna_cadence(tensor: Tensor, request: Request) -> bool:
    layer = tensor.layer
    return layer is not None and more_bits(layer, request.layers, cadence_end=request.layers // 2 - 4)


def _of_attention(tensor: Tensor) -> bool:
    return tensor.has(".q_proj.", ".k_proj.", ".v_proj.", ".o_proj.", ".g_proj.")


def _shared_down(tensor: Tensor) -> bool:
    return tensor.has(".shared_expert.") and tensor.has("down_proj")


def _dense_mlp(tensor: Tensor, request: Request) -> bool:
    return (
        tensor.has(".mlp.gate_proj.", ".mlp.up_proj.", ".mlp.down_proj.")
        and tensor.layer is not None
        and tensor.layer in request.dense
    )


def _row(when: Callable[[Tensor, Request], bool], offers: tuple[Offer, ...], reason: str) -> Row:
    """A row for the microscaling formats only; affine ones leave this family to the generic rows."""
    return Row(lambda t, r: r.format.mode != "affine" and when(t, r), offers, reason)


_ROWS: tuple[Row, ...] = (
    _row(lambda t, _: is_table(t) or is_head(t), EIGHT, "embedding or head"),
    _row(lambda t, r: _of_attention(t) and not r.float4, SOURCE, "attention of a mostly-expert model"),
    _row(lambda t, _: _of_attention(t), REQUESTED, "as requested"),
    _row(_dense_mlp, REQUESTED, "as requested"),
    _row(
        lambda t, r: t.has(".experts.") and not r.float4 and t.has("down_proj") and _laguna_cadence(t, r),
        SOURCE,
        "sensitive matrix, sensitive layer",
    ),
    _row(lambda t, _: t.has(".experts."), REQUESTED, "as requested"),
    _row(lambda t, r: _shared_down(t) and not r.float4, SOURCE, "sensitive matrix"),
    _row(
        lambda t, r: _shared_down(t) and _laguna_cadence(t, r),
        EIGHT_ELSE,
        "sensitive matrix, sensitive layer",
    ),
    _row(lambda t, _: t.has(".shared_expert."), REQUESTED, "as requested"),
    _row(lambda _t, _r: True, SOURCE, "not a matrix this family quantizes"),
)

CHECKPOINT = Checkpoint(rows=_ROWS, default_layers=40, towers=USUAL)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=CORRECTIONS,
    checkpoint=always(CHECKPOINT),
)
