"""Spark-X2.5: a Llama whose heads have gates, and whose layers mostly slide.

Queries, keys and values come of one matrix; what a head has read is multiplied by a sigmoid of its own gate.
Sliding layers and full ones rotate by rules of their own, full ones a quarter of each head.

Source: mlx-lm spark2_5.py; read beside its authors' modeling_spark.py and llama.cpp's spark2_5.cpp.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_shape, read_windows
from runtime.config.fields import Fields
from runtime.config.rope_block import only_repeats
from runtime.models.family import Family
from runtime.nn.activation import sigmoid
from runtime.nn.attention.gated_attention import OpenedFusedAttention
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.experts import Weights
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    """On all projections of attention, its gate's too."""
    mlp_bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("spark2_5",))
    shape = read_shape(
        fields,
        activation="gelu",
        activations=("gelu",),
        tied=True,
        vocab_size=133120,
        hidden_size=2048,
        intermediate_size=6656,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=256,
        max_position_embeddings=8192,
    )
    fields.only({"headwise_attn_output_gate": True})
    fields.choice("gate_attn_act_mode", ("sigmoid",), "sigmoid")
    layers = layer_count(fields, 28)
    windows = read_windows(fields, layers, full_every=4, window=fields.count("sliding_window", 512))
    full, sliding = (_rope(fields, shape, kind) for kind in _ROPES)
    return Config(
        **shape,
        windows=windows,
        ropes=tuple(full if window is None else sliding for window in windows),
        bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
    )


_ROPES = {
    "full_attention": {"rope_theta": 5e6, "partial_rotary_factor": 0.25},
    "sliding_attention": {"rope_theta": 1e4, "partial_rotary_factor": 1.0},
}
"""What its authors' class takes where a file has no block."""


def _rope(fields: Fields, shape: dict[str, Any], kind: str) -> RopeSpec:
    """Its classes look at the base and the share of these blocks, and at nothing else."""
    if fields.has("rope_scaling") and not only_repeats(fields.raw):
        fields.refuse("rope_scaling", "none: the rotation of this family is not scaled")
    if not fields.has("rope_parameters"):
        fields.take("rope_parameters", _ROPES)
        parameters: Mapping[str, Any] = _ROPES[kind]
    else:
        parameters = fields.rope_parameters(kind)
    if parameters.get("rope_type", "default") != "default":
        fields.refuse("rope_parameters", f"rope_type default in {kind}: the rotation is not scaled here")
    return read_rope(parameters, head_dim=shape["head_dim"], max_positions=shape["context_length"])


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm(
            OpenedFusedAttention(config, rope, sigmoid, bias=config.bias),
            gated_mlp(config, bias=config.mlp_bias),
            norm,
        )
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


_NAMES = (
    ("model.embedding.", "model.embed_tokens."),
    (".self_attn.q_k_v_proj.", ".self_attn.qkv_proj."),
    (".self_attn.out_proj.", ".self_attn.o_proj."),
)


def adapt(config: Config, weights: Weights) -> Weights:
    return without_spares(config, respelled(weights, _NAMES))


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
