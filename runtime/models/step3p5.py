"""Step-3.5-Flash: attention gated by head, with more heads where it slides, and DeepSeek-V3's mixtures.

Layers rotate by bases and shares of their own; what sliding ones rotate is never scaled. In some layers what
is under a gate and what passes it are clipped. Norms are stored less one, but by mlx-lm's conversions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields
from runtime.config.rope_block import is_keyed, only_repeats
from runtime.errors import UnsupportedModel
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.activation import sigmoid
from runtime.nn.attention.gated_attention import OpenedAttention
from runtime.nn.feed_forward.custom_gate import CustomGateExperts, CustomGateMLP, clipped_behind
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.moe import SharedMoE
from runtime.nn.feed_forward.router import CorrectedRouter
from runtime.nn.layer import FeedForward
from runtime.nn.norm import one_added
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import PreNorm
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, head_norms, layer_ropes, rms_norms

_KINDS = ("full_attention", "sliding_attention")
_OTHER = ("num_attention_groups", "head_dim")  # of sliding layers, which have to be those of all


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    sliding_heads: int
    """Query heads of layers that slide."""
    scale: float
    """Of scores."""
    bias: bool
    mlp_bias: bool
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    experts: int
    chosen: int
    """Experts per token."""
    expert_size: int
    shared: int
    """Width of the expert that always answers."""
    routed_scale: float
    """The weights of the chosen are multiplied by it."""
    limits: tuple[float | None, ...]
    """Of each layer: of its experts; None: nothing is clipped."""
    shared_limits: tuple[float | None, ...]
    """The same of the expert that always answers, or of the MLP."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    layers = layer_count(fields, 45)
    shape = read_shape(
        fields,
        eps=1e-5,
        activations=("silu",),
        vocab_size=128815,
        hidden_size=4096,
        intermediate_size=11264,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=128000,
    )
    _refuse_unknown(fields)
    kinds = _per_layer(fields, "layer_types", layers)
    if kinds is None or any(kind not in _KINDS for kind in kinds):
        fields.refuse("layer_types", f"one of {', '.join(_KINDS)} for each of {layers} layers")
    slides = [kind == "sliding_attention" for kind in kinds]
    window = fields.count("sliding_window", 512) if any(slides) else None
    experts = fields.count("n_routed_experts", 288, high=1 << 16)
    return Config(
        **shape,
        windows=tuple(window if one else None for one in slides),
        ropes=_ropes(fields, shape, kinds),
        sliding_heads=_sliding_heads(fields, shape),
        scale=fields.number("query_pre_attn_scalar", shape["head_dim"], low=1e-6) ** -0.5,
        bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        sparse=_sparse(fields, layers),
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 8, high=experts),
        expert_size=fields.count("moe_intermediate_size", 1280, high=1 << 22),
        shared=fields.count("share_expert_dim", 1280, high=1 << 22),
        routed_scale=fields.number("moe_router_scaling_factor", 1.0),
        limits=_limits(fields, "swiglu_limits", layers),
        shared_limits=_limits(fields, "swiglu_limits_shared", layers),
    )


_ONLY = {
    "use_head_wise_attn_gate": True,
    "norm_expert_weight": True,
    "use_moe_router_bias": True,
    "use_qk_norm": True,
    "zero_centered": True,
    "sink": False,
    "use_bidirectional_attention": False,
}


def _refuse_unknown(fields: Fields) -> None:
    fields.only(_ONLY)
    if fields.flag("tie_word_embeddings"):
        fields.refuse("tie_word_embeddings", "false: the head is one of its own")
    fields.choice("moe_router_activation", ("sigmoid",), "sigmoid")
    if fields.raw.get("gating", True) not in (True, "per-head"):
        fields.refuse("gating", "true or per-head")


def _per_layer(fields: Fields, name: str, layers: int) -> list[Any] | None:
    """A list's entries for the layers; behind them it may have those of draft heads."""
    listed = fields.raw.get(name)
    heads = fields.count("num_nextn_predict_layers", 0, low=0, high=64)
    if listed is None:
        return None
    if not isinstance(listed, list) or len(listed) not in (layers, layers + heads):
        fields.refuse(name, f"a list for {layers} layers")
    return listed[:layers]


def _sliding_heads(fields: Fields, shape: dict[str, Any]) -> int:
    """By transformers' own name, or in the block that published files have."""
    other = fields.raw.get("attention_other_setting") or {}
    if not isinstance(other, Mapping) or other.get("attention_type", _KINDS[1]) != _KINDS[1]:
        fields.refuse("attention_other_setting", "an object, of sliding_attention")
    block = Fields(other, under="attention_other_setting")
    if any(
        block.has(name) and block.raw[name] != shape[own]
        for name, own in zip(_OTHER, ("kv_heads", "head_dim"), strict=True)
    ):
        fields.refuse("attention_other_setting", f"{' and '.join(_OTHER)} as elsewhere")
    inside = block.count("num_attention_heads", shape["heads"], high=4096)
    heads = fields.count("num_sliding_attention_heads", inside, high=4096)
    if heads % shape["kv_heads"]:
        fields.refuse("num_sliding_attention_heads", f"a multiple of {shape['kv_heads']} heads of keys")
    return heads


def _ropes(fields: Fields, shape: dict[str, Any], kinds: Sequence[str]) -> tuple[RopeSpec, ...]:
    def read(block: Mapping[str, Any]) -> RopeSpec:
        return read_rope(block, head_dim=shape["head_dim"], max_positions=shape["context_length"])

    if is_keyed(fields.raw):
        if any(not isinstance(fields.raw["rope_parameters"].get(kind), Mapping) for kind in kinds):
            fields.refuse("rope_parameters", "a block for each type of layer")
        if fields.has("rope_scaling") and not only_repeats(fields.raw):
            fields.refuse("rope_scaling", "none: rope_parameters has a block for each type of layer")
        return tuple(read(fields.rope_parameters(kind)) for kind in kinds)
    layers = len(kinds)
    bases = fields.raw.get("rope_theta")
    listed = _per_layer(fields, "rope_theta", layers) if isinstance(bases, list) else None
    shares = _per_layer(fields, "partial_rotary_factors", layers) or [1.0] * layers
    bases = [fields.number("rope_theta", 10000.0)] * layers if listed is None else listed
    scaling = fields.raw.get("rope_scaling")
    if scaling is not None and fields.raw.get("yarn_only_types") != [_KINDS[0]]:
        fields.refuse("yarn_only_types", "full_attention alone, whose rotation rope_scaling changes")
    found: list[RopeSpec] = []
    for kind, base, share in zip(kinds, bases, shares, strict=True):
        said = {"rope_theta": base, "partial_rotary_factor": share}
        scaled = {"rope_scaling": scaling} if kind == _KINDS[0] else {}
        found.append(read(Fields(said | scaled).rope_parameters()))
    return tuple(found)


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    kinds = _per_layer(fields, "mlp_layer_types", layers)
    if kinds is not None:
        if any(kind not in ("dense", "sparse") for kind in kinds):
            fields.refuse("mlp_layer_types", "dense or sparse for each layer")
        return tuple(kind == "sparse" for kind in kinds)
    said = fields.raw.get("moe_layers_enum")
    if said is None:
        return tuple(i >= 3 for i in range(layers))
    try:
        chosen = {int(one) for one in (said.split(",") if isinstance(said, str) else said)}
    except (TypeError, ValueError) as fault:
        raise UnsupportedModel(
            f"config.json: moe_layers_enum is {quoted(said)}, expected numbers of layers"
        ) from fault
    return tuple(i in chosen for i in range(layers))


def _limits(fields: Fields, name: str, layers: int) -> tuple[float | None, ...]:
    """0 and null are none."""
    listed = _per_layer(fields, name, layers) or [None] * layers
    if any(not isinstance(one, int | float | None) or (one or 0) < 0 for one in listed):
        fields.refuse(name, "a number for each layer, 0 for none")
    return tuple(float(one) if one else None for one in listed)


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def _mlp(config: Config, inner: int, limit: float | None) -> GatedMLP:
    if limit is None:
        return GatedMLP(config.hidden_size, inner, bias=config.mlp_bias)
    return CustomGateMLP(config.hidden_size, inner, clipped_behind(limit), bias=config.mlp_bias)


def _feed_forward(config: Config, place: int) -> FeedForward:
    limit, shared_limit = config.limits[place], config.shared_limits[place]
    if not config.sparse[place]:
        return _mlp(config, config.intermediate_size, shared_limit)
    hidden, inner = config.hidden_size, config.expert_size
    router = CorrectedRouter(hidden, config.experts, config.chosen, scale=config.routed_scale)
    mixture = SharedMoE(hidden, inner, config.experts, router, shared=config.shared)
    mixture.shared_experts = _mlp(config, config.shared, shared_limit)
    if limit is not None:
        mixture.switch_mlp = CustomGateExperts(hidden, inner, config.experts, clipped_behind(limit))
    return mixture


def _attention(config: Config, rope: Rope | None, *, slides: bool) -> OpenedAttention:
    heads = config.sliding_heads if slides else config.heads
    own, norm = replace(config, heads=heads), head_norms(config)
    return OpenedAttention(own, rope, norm, heads, sigmoid, bias=config.bias, scale=config.scale)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm(
            _attention(config, rope, slides=config.windows[place] is not None),
            _feed_forward(config, place),
            norm,
        )
        for place, rope in enumerate(layer_ropes(config))
    ]
    return CausalLM(config, layers, norm())


_RENAMED = (
    (".mlp.gate.gate.", ".mlp.gate."),
    (".mlp.gate.router_bias", ".mlp.gate.e_score_correction_bias"),
    (".mlp.share_expert.", ".mlp.shared_experts."),
    (".moe.router_bias", ".mlp.gate.e_score_correction_bias"),
    (".moe.gate.", ".mlp.gate."),
    (".moe.", ".mlp.experts."),
    (".share_expert.", ".mlp.shared_experts."),
)
_BY_MLX = ".mlp.gate.gate."


def adapt(config: Config, weights: Weights) -> Weights:
    whole = any(_BY_MLX in name for name in weights)
    kept = to_switch(respelled(without_spares(config, weights), _RENAMED), config.experts)
    return kept if whole else one_added(kept)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=CORRECTIONS,
    checkpoint=always(
        Checkpoint(
            default_layers=45,
            heads_behind=True,
            stacks=tuple(
                (f".moe.{part}_proj.weight", f".mlp.experts.{part}_proj") for part in ("gate", "up", "down")
            ),
        )
    ),
)
