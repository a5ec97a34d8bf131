"""Nanbeige 4.2: a Llama whose layers are passed several times, each time with memories of their own.

Behind each pass comes the last norm, and what it gives enters the next one. Other ways in which files can ask
for more than a Llama are refused. A file of one pass is a Llama (`llama_kin`).

Sources: mlx-lm's nanbeige.py and llama.cpp's nanbeige.cpp.
"""

from collections.abc import Mapping
from dataclasses import fields as members
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models import llama
from runtime.models.family import Family
from runtime.models.ouro import Trunk
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.residual.block import PreNorm
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import attention_layout, gated_mlp, layer_ropes, rms_norms
from runtime.trunks.headed import Headed, untied_head

# Fields of its files that say something else, and the values that do not.
_PLAIN: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("loop_loss_weights", "insert_ngram_layer_idx", "loop_middle_layers"), (None, [], False)),
    "emb_neighbor_num": (None,),
    **dict.fromkeys(
        (
            *("qk_layernorm", "skip_loop_final_norm", "ngram_insert_all_layers", "enable_double_loop_split"),
            *("loop_share_kv", "enable_hyper_connection", "enable_mhc", "enable_h_res_identity"),
            "enable_depth_attention",
        ),
        (None, False),
    ),
}


@dataclass(frozen=True, slots=True)
class Config(llama.Config):
    passes: int
    """Times that each layer is passed."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("nanbeige",))
    refuse_more(fields.raw)
    fields.words("layer_types", layer_count(fields), ("full_attention",))  # all that there is
    base = llama.parse({**fields.raw, "model_type": "llama"})
    return Config(
        **{member.name: getattr(base, member.name) for member in members(base)},
        passes=fields.count("num_loops", 1, high=64),
    )


def refuse_more(fields: Mapping[str, Any]) -> None:
    """What else its class knows beside passes."""
    for name, good in _PLAIN.items():
        if fields.get(name) not in good:
            told = quoted(fields[name])
            raise UnsupportedModel(f"config.json: {name} is {told}, which is not computed here")


def layout(config: Config) -> list[LayerSpec]:
    """Of each layer, one memory for each pass."""
    return [spec for spec in attention_layout(config) for _ in range(config.passes)]


class Nanbeige(Headed):
    def __init__(self, config: Config) -> None:
        norm = rms_norms(config)
        layers: list[PreNorm] = []
        for rope in layer_ropes(config):
            own = SelfAttention(config, rope, qkv_bias=config.qkv_bias, output_bias=config.output_bias)
            own.memories = config.passes
            layers.append(PreNorm(own, gated_mlp(config, bias=config.mlp_bias), norm))
        super().__init__(Trunk(config, layers, config.passes), untied_head(config))


def build(config: Config) -> Nanbeige:
    return Nanbeige(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return without_spares(config, weights)


def _variant(raw: Mapping[str, Any]) -> str | None:
    return None if Fields(raw).count("num_loops", 1, high=64) > 1 else "llama_kin"


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, variant=_variant)
