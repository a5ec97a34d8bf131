"""Arcee (AFM) and Jais 2: Llamas whose MLPs have no gate and a squared ReLU; Jais has LayerNorms."""

from collections.abc import Mapping
from typing import Any

from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.models.nemotron import Config, build, layout
from runtime.tensors.names import without_spares


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    jais = fields.choice("model_type", ("arcee", "jais2")) == "jais2"
    shape = read_shape(
        fields,
        eps_field="layer_norm_eps" if jais else "rms_norm_eps",
        eps=1e-5,
        activation="relu2",
        max_position_embeddings=8192 if jais else 4096,
    )
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        centred=jais,
        attention_bias=fields.flag("attention_bias", jais),
        mlp_bias=fields.flag("mlp_bias", jais),
    )


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares)
