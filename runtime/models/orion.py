"""Orion: a Llama with LayerNorms, whose constant files call that of an RMS norm.

Source: the authors' modeling_orion.py; llama.cpp's orion.cpp.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.residual.block import PreNorm
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_norms, layer_ropes


def parse(raw: Mapping[str, Any]) -> DecoderConfig:
    fields = Fields(raw)
    fields.choice("model_type", ("orion",))
    fields.only({"attention_bias": False, "mlp_bias": False})
    shape = read_shape(
        fields,
        eps=1e-5,
        vocab_size=84608,
        hidden_size=4096,
        intermediate_size=15360,
        num_attention_heads=40,
        num_key_value_heads=40,
        max_position_embeddings=4096,
    )
    layers = layer_count(fields, 40)
    return DecoderConfig(**shape, windows=(None,) * layers, ropes=(one_rope(fields, shape),) * layers)


def layout(config: DecoderConfig) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: DecoderConfig) -> CausalLM:
    norm = layer_norms(config)
    layers = [PreNorm(SelfAttention(config, rope), gated_mlp(config), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm())


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares)
