"""Helium: a Llama that rotates neighbouring pairs, and whose heads are as wide together as the stream."""

from collections.abc import Mapping
from typing import Any

from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.models.llama import Config, build, layout
from runtime.tensors.names import without_spares


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("helium",))
    shape = read_shape(fields, eps=1e-8, num_key_value_heads=20, head_dim=128, max_position_embeddings=4096)
    if shape["heads"] * shape["head_dim"] != shape["hidden_size"]:
        fields.refuse("head_dim", f"hidden_size over {shape['heads']} heads")
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, theta=100000.0, traditional=True),) * layers,
        qkv_bias=fields.flag("attention_bias"),
        output_bias=False,
        mlp_bias=fields.flag("mlp_bias"),
        head_norm=False,
    )


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares)
