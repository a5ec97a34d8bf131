"""PLaMo 3: norms on both sides of attention and MLP, and on each query and key head; all but every eighth
layer look through a window.

Layers under a window rotate by a base of their own, the others by another one, by YaRN where a file says so.
A window counts the token itself, as in vLLM and llama.cpp; in mlx-lm prompts see one token more.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.models.plamo2 import OFFSETS, Block, whole_norms
from runtime.nn.attention.fused_attention import FusedHeadNormAttention
from runtime.nn.norm import RMSNorm
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, head_norms, layer_ropes

_BASE = 150_000
"""That of the authors' class: a file's `rope_global_theta`, the older name, counts beside it."""
_OFFSETS = {**OFFSETS, ".q_norm.weight": 1.0, ".k_norm.weight": 1.0}


Config = DecoderConfig


def parse(raw: Mapping[str, Any]) -> Config:
    """UnsupportedModel names the field that cannot be run."""
    fields = Fields(raw)
    layers = layer_count(fields, 32)
    shape = read_shape(
        fields,
        activations=("silu", "swish"),
        tied=True,
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=13312,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
    )
    every, window = fields.count("sliding_window_pattern", 8), _window(fields)
    wide, near = _ropes(fields, shape)
    _refuse_unknown(fields)
    full = [(i + 1) % every == 0 for i in range(layers)]
    return Config(
        **shape,
        windows=tuple(None if whole else window for whole in full),
        ropes=tuple(wide if whole else near for whole in full),
    )


def _window(fields: Fields) -> int:
    """An older file's list has it for each layer, null for those without."""
    older = fields.raw.get("sliding_window")
    if isinstance(older, list):
        given = {one for one in older if one is not None}
        if len(given) != 1:
            fields.refuse("sliding_window", "one width for all layers that have one")
        return Fields({"sliding_window": given.pop()}).count("sliding_window")
    return fields.count("window_size" if older is None else "sliding_window")


def _ropes(fields: Fields, shape: Mapping[str, Any]) -> tuple[RopeSpec, RopeSpec]:
    """Of layers that look at everything, and of those under a window."""
    older = fields.has("rope_global_theta") and fields.raw.get("rope_theta", _BASE) == _BASE
    wide = {
        "rope_type": "default",
        "rope_theta": fields.number("rope_global_theta" if older else "rope_theta", low=1),
    }
    near = {"rope_type": "default", "rope_theta": fields.number("rope_local_theta", 10000.0, low=1)}
    factor = fields.number("rope_scaling_factor", 1.0, low=1)
    if factor != 1:
        length = fields.count("initial_context_length")
        yarn = {"rope_type": "yarn", "factor": factor, "truncate": False, "beta_fast": 32.0, "beta_slow": 1.0}
        wide = {**wide, **yarn, "original_max_position_embeddings": length}
    sizes = {"head_dim": shape["head_dim"], "max_positions": shape["context_length"]}
    return read_rope(wide, **sizes), read_rope(near, **sizes)


def _refuse_unknown(fields: Fields) -> None:
    fields.choice("linear_type", ("normal",), "normal")
    fields.only({"scale_embedding": False, "attention_bias": False})
    for name in ("rope_scaling", "image_token_id", "image_feature_size"):
        if fields.has(name):
            fields.refuse(name, "none")


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norms = head_norms(config)
    layers = [Block(config, FusedHeadNormAttention(config, rope, norms)) for rope in layer_ropes(config)]
    return CausalLM(config, layers, RMSNorm(config.hidden_size, eps=config.norm_eps))


def adapt(config: Config, weights: Weights) -> Weights:
    """Norms whole."""
    named = respelled(without_spares(config, weights), (("model.layers.layers.", "model.layers."),))
    return whole_norms(named, _OFFSETS)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(default_layers=32)),
)
