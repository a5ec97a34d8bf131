"""PLaMo (13B): a Llama whose attention and MLP read the same normed stream, and whose heads of keys and
values are read in turn: query head h reads the one at h modulo their number.

Heads are brought into the usual order behind the projections, and back before the last one.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.errors import CannotCut
from runtime.models.family import Family
from runtime.nn.attention.self_attention import Projected, SelfAttention
from runtime.nn.residual.block import Parallel
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms

_BASE = 10000.0


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    """Nothing more."""


def parse(raw: Mapping[str, Any]) -> Config:
    """UnsupportedModel names the field that cannot be run. `num_key_value_heads` says nothing here."""
    fields = Fields({name: value for name, value in raw.items() if name != "num_key_value_heads"})
    shape = read_shape(fields, activations=("silu", "swish"), max_position_embeddings=4096)
    heads, each = shape["heads"], fields.count("n_shared_head", 8)
    if heads % each:
        fields.refuse("n_shared_head", f"a divisor of the {heads} heads")
    if shape["head_dim"] * heads != shape["hidden_size"]:
        fields.refuse("num_attention_heads", f"a divisor of hidden_size, {shape['hidden_size']}")
    shape["kv_heads"] = heads // each
    layers, rope = layer_count(fields), one_rope(fields, shape)
    parameters = fields.rope_parameters()
    if (parameters["rope_type"], parameters["rope_theta"]) != ("default", _BASE):
        said = next(name for name in ("rope_parameters", "rope_scaling", "rope_theta") if fields.has(name))
        fields.refuse(said, "none: this family rotates by 10000 and not scaled")
    if fields.flag("rope_traditional"):
        fields.refuse("rope_traditional", "false")
    return Config(**shape, windows=(None,) * layers, ropes=(rope,) * layers)


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class TiledAttention(SelfAttention):
    """[B, L, D] -> [B, L, D]."""

    def project(self, x: mx.array, step: Step) -> Projected:
        queries, keys, values = super().project(x, step)
        by_turn = queries.reshape(len(x), -1, self._kv_heads, *queries.shape[2:])
        return by_turn.swapaxes(1, 2).flatten(1, 2), keys, values

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        found = super().seen(x, step, cache)
        by_group = found.reshape(*found.shape[:2], self._kv_heads, -1, self._head_dim)
        return by_group.swapaxes(2, 3).flatten(2)

    def of_heads(self, heads: int, groups: int) -> dict[str, Any]:
        """Neighbours read different keys."""
        raise CannotCut("its heads of keys are read in turn")


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [Parallel(TiledAttention(config, rope), gated_mlp(config), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm())


def adapt(config: Config, weights: Weights) -> Weights:
    adapted: Weights = {}
    for name, array in without_spares(config, weights).items():
        name = name.replace("model.layers.layers.", "model.layers.")
        inside = name.startswith("model.layers.")
        adapted[name.replace(".norm.", ".input_layernorm.") if inside else name] = array
    return adapted


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint()),
)
