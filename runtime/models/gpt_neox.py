"""GPT-NeoX and Pythia: LayerNorms, a quarter of each head rotated, sublayers side by side on norms of their
own.

Queries, keys and values are one matrix whose rows go head by head.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.fused_attention import GroupedAttention
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import PreNorm, SideBySide
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_norms, layer_ropes, plain_mlp


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    parallel: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, eps_field="layer_norm_eps", eps=1e-5, activation="gelu")
    layers = layer_count(fields)
    return Config(
        **{**shape, "kv_heads": shape["heads"]},
        windows=(None,) * layers,
        ropes=(_rope(fields, shape),) * layers,
        bias=fields.flag("attention_bias", True),
        parallel=fields.flag("use_parallel_residual", True),
    )


def _rope(fields: Fields, shape: dict[str, Any]) -> RopeSpec:
    """Older files call the base rotary_emb_base, and the share of the head rotary_pct; other families' names
    for them mean nothing to transformers here.
    """
    base = fields.number("rotary_emb_base", 10000.0, low=1.0)
    share = fields.number("rotary_pct", 0.25, low=0.0)
    parameters = {"partial_rotary_factor": share, **fields.rope_parameters(theta=base)}
    named = {"rope_theta": base, "partial_rotary_factor": share}
    own = {"partial_rotary_factor": share, **Fields({**fields.raw, **named}).rope_parameters()}
    for name, older in (("rope_theta", "rotary_emb_base"), ("partial_rotary_factor", "rotary_pct")):
        if parameters[name] != own[name]:
            fields.refuse(name, f"it as {older}, which is this family's name for it")
    return read_rope(parameters, head_dim=shape["head_dim"], max_positions=shape["context_length"])


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm, block = layer_norms(config), SideBySide if config.parallel else PreNorm
    layers = [
        block(GroupedAttention(config, rope, bias=config.bias), plain_mlp(config, bias=True), norm)
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


_BUFFERS = (".attention.bias", ".attention.masked_bias")


_NAMES = (
    ("lm_head.", "embed_out."),
    ("model.embed_out.", "embed_out."),
    ("gpt_neox.", "model."),
    ("model.h.", "model.layers."),
    ("model.embed_in.", "model.embed_tokens."),
    ("model.final_layer_norm.", "model.norm."),
    ("embed_out.", "lm_head."),
    (".attention.", ".self_attn."),
    (".self_attn.dense.", ".self_attn.o_proj."),
    (".mlp.dense_h_to_4h.", ".mlp.up_proj."),
    (".mlp.dense_4h_to_h.", ".mlp.down_proj."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """transformers 5 calls the head lm_head, MLX conversions the trunk model."""
    return without_spares(config, respelled(weights, _NAMES))


CHECKPOINT = Checkpoint(spare=_BUFFERS, modules=(("embed_out.", "lm_head."),))

FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(CHECKPOINT),
)
