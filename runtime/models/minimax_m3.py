"""MiniMax M3 (the text model): MiniMax M2's routers beside an expert that always answers, all under a clipped
SwiGLU, and in most layers attention to blocks of keys that an indexer chooses.

Queries and keys are normed by head. Norms are stored less one. How much of a head is rotated has two names in
published files, partial_rotary_factor and `rotary_dim`: transformers goes by the one, SGLang by the other,
and so files in which they differ, or that have the second alone, are refused.

Source: transformers modeling_minimax_m3_vl.py.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.attention.block_choice import BlockIndex, ChoosingAttention
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.moe import SharedMoE
from runtime.nn.feed_forward.router import CorrectedRouter
from runtime.nn.layer import FeedForward
from runtime.nn.norm import one_added
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import MODULES, Weights, numbered_names, to_switch
from runtime.tensors.names import respelled, text_tensors
from runtime.trunks.decoder import CausalLM, attention_layout, head_norms, layer_ropes, rms_norms

_FULL, _CHOOSING = "full_attention", "minimax_m3_sparse"


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    """`intermediate_size` is that of an expert."""

    dense_size: int
    """Of the MLP, in layers without experts."""
    shared: int
    """Width of the expert that always answers."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    experts: int
    chosen: int
    """Experts per token."""
    scale: float
    """The weights of the chosen are multiplied by it."""
    clip: tuple[float, float]
    """Limit and slope of the clipped SwiGLU."""
    index: BlockIndex
    choosing: tuple[bool, ...]
    """Of each layer: it attends to blocks that its indexer chooses; else to all."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(
        fields,
        activations=("silu", "swigluoai"),
        vocab_size=200064,
        hidden_size=6144,
        intermediate_size=3072,
        num_attention_heads=64,
        num_key_value_heads=4,
        head_dim=128,
        max_position_embeddings=524288,
    )
    layers = layer_count(fields, 60)
    _refuse_unknown(fields)
    choosing, rope = _choosing(fields, layers), _rope(fields, shape)
    experts = fields.count("num_local_experts", 128, high=1 << 16)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        dense_size=fields.count("dense_intermediate_size", 12288, high=1 << 22),
        shared=fields.count("shared_intermediate_size", 3072, high=1 << 22),
        sparse=_sparse(fields, layers),
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 4, high=experts),
        scale=fields.number("routed_scaling_factor", 2.0),
        clip=(
            fields.number("swiglu_limit", 7.0, low=0.0),
            fields.number("swiglu_alpha", 1.702),
        ),
        index=_index(fields, shape, rope),
        choosing=choosing,
    )


_ONLY = {
    "use_qk_norm": True,
    "use_gemma_norm": True,
    "use_routing_bias": True,
    "attention_output_gate": False,
}
_BLOCK = "sparse_attention_config"
_OLDER = {
    "index_n_heads": "sparse_num_index_heads",
    "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size",
    "index_topk_blocks": "sparse_topk_blocks",
    "index_local_blocks": "sparse_local_block",
}


def _refuse_unknown(fields: Fields) -> None:
    """What the authors' files could say, and transformers does not look at."""
    fields.only(_ONLY)
    fields.choice("qk_norm_type", ("per_head",), "per_head")
    fields.choice("scoring_func", ("sigmoid",), "sigmoid")
    fields.count("n_shared_experts", 1, high=1)
    block = fields.block(_BLOCK)
    block.only({"use_sparse_attention": True})
    block.choice("sparse_score_type", ("max",), "max")
    block.count("sparse_init_block", 0, low=0, high=0)


def _choosing(fields: Fields, layers: int) -> tuple[bool, ...]:
    block = fields.block(_BLOCK)
    kinds = fields.words("layer_types", layers, (_FULL, _CHOOSING))
    if kinds is not None:
        found = tuple(kind == _CHOOSING for kind in kinds)
    else:
        found = block.switches("sparse_attention_freq", layers) or (False,) * layers
        fields.take("layer_types", [_CHOOSING if one else _FULL for one in found])
    without = block.switches("sparse_disable_index_value", layers)
    if without is not None and not all(off for off, one in zip(without, found, strict=True) if one):
        block.refuse("sparse_disable_index_value", "1 for each layer that chooses: indices have no values")
    return found


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    kinds = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    return fields.switches("moe_layer_freq", layers) or (True,) * layers


def _rope(fields: Fields, shape: dict[str, Any]) -> RopeSpec:
    rope = one_rope(fields, shape, theta=5e6, partial=1.0)
    if fields.has("rotary_dim") and fields.count("rotary_dim") != rope.dims:
        fields.refuse("rotary_dim", f"{rope.dims}, by the partial_rotary_factor of rope_parameters")
    return rope


def _index(fields: Fields, shape: dict[str, Any], rope: RopeSpec) -> BlockIndex:
    """The older names count where both are there, as to transformers."""
    block = fields.block(_BLOCK)
    said = {name: block.raw[older] for name, older in _OLDER.items() if older in block.raw}
    own = Fields({**fields.raw, **said})
    groups = own.count("index_n_heads", 4)
    if groups != shape["kv_heads"]:
        own.refuse("index_n_heads", f"num_key_value_heads, {shape['kv_heads']}")
    chosen = own.count("index_topk_blocks", 16)
    return BlockIndex(
        size=own.count("index_head_dim", 128, low=rope.dims, high=4096),
        block=own.count("index_block_size", 128),
        chosen=chosen,
        local=own.count("index_local_blocks", 1, low=0, high=chosen),
    )


def layout(config: Config) -> list[LayerSpec]:
    choosing = config.index.memory(config.kv_heads, config.head_dim)
    return [
        choosing if one else plain
        for one, plain in zip(config.choosing, attention_layout(config), strict=True)
    ]


def _attention(config: Config, rope: Rope, *, choosing: bool) -> HeadNormAttention:
    if choosing:
        return ChoosingAttention(config, rope, config.index, config.norm_eps)
    return HeadNormAttention(config, rope, head_norms(config))


def _mlp(config: Config, *, sparse: bool) -> FeedForward:
    hidden = config.hidden_size
    if not sparse:
        return GatedMLP(hidden, config.dense_size, clip=config.clip)
    router = CorrectedRouter(hidden, config.experts, config.chosen, scale=config.scale)
    sizes = hidden, config.intermediate_size, config.experts
    return SharedMoE(*sizes, router, shared=config.shared, clip=config.clip)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    kinds = zip(layer_ropes(config), config.choosing, config.sparse, strict=True)
    layers = [
        PreNorm(_attention(config, rope, choosing=choosing), _mlp(config, sparse=sparse), norm)
        for rope, choosing, sparse in kinds
        if rope is not None
    ]
    return CausalLM(config, layers, norm())


_INDEXERS = tuple((f".self_attn.index_{part}_", f".self_attn.indexer.{part}_") for part in "qk")
_NAMES = (
    *_INDEXERS,
    (".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"),
)


def adapt(config: Config, weights: Weights) -> Weights:
    """Files have Mixtral's names for experts, and corrections beside the gate."""
    own = numbered_names(text_tensors(config, weights))
    return one_added(to_switch(respelled(own, _NAMES), config.experts))


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=CORRECTIONS,
    checkpoint=always(
        Checkpoint(
            halved=tuple(
                (f"{home}.gate_up_proj.", (f"{home}.gate_proj.", f"{home}.up_proj."))
                for home in (".mlp", ".block_sparse_moe", ".shared_experts")
            ),
            modules=(*MODULES, *_INDEXERS),
            default_layers=60,
            heads=("mtp.",),
        )
    ),
)
