"""Ministral 3, and the text tower of Mistral 3 (Mistral Small 3.1 and later), which is it or a plain Mistral.

A Llama whose queries, past the length the model was trained at, grow with the logarithm of their position
(`llama_4_scaling_beta`), so that attention stays sharp over long contexts.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, own_rope, read_shape
from runtime.config.fields import Fields, whole_heads
from runtime.config.text import levels
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.positions.attention_temperature import AttentionTemperature
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import read_rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import text_tensors
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms

# What the transformers classes take for fields that a file leaves out, by the text tower's type.
_DEFAULTS: dict[str, dict[str, int]] = {
    "mistral": {
        "vocab_size": 32000,
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
    },
    "ministral3": {
        "vocab_size": 131072,
        "num_hidden_layers": 34,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 262144,
    },
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
}


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    sharpening: AttentionTemperature


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    # A wrapper that does not say what its text tower is means a plain Mistral.
    kind = "mistral" if any("model_type" not in block for _, block in levels(raw)[1:]) else None
    kind = kind or fields.choice("model_type", tuple(_DEFAULTS))
    said = {name: value for name, value in fields.raw.items() if value is not None}
    fields = Fields({**_DEFAULTS[kind], **said})
    shape = read_shape(fields, eps=1e-6 if kind == "mistral" else 1e-5)
    layers = layer_count(fields)
    window = fields.count("sliding_window") if fields.has("sliding_window") else None
    rope = whole_heads(fields.rope_parameters() if kind == "mistral" else own_rope(fields, _YARN))
    return Config(
        **shape,
        windows=(window,) * layers,
        ropes=(read_rope(rope, head_dim=shape["head_dim"], max_positions=shape["context_length"]),) * layers,
        sharpening=AttentionTemperature(
            float(rope.get("llama_4_scaling_beta") or 0.0),
            int(rope.get("original_max_position_embeddings") or shape["context_length"]),
        ),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class SharpenedAttention(SelfAttention):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__(config, rope)
        self._sharpening = config.sharpening

    def factors(self, step: Step) -> mx.array | None:
        return self._sharpening.factors(step)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm(SharpenedAttention(config, rope), gated_mlp(config), norm) for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=text_tensors,
    checkpoint=always(Checkpoint(towers=USUAL)),
)
