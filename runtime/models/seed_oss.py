"""Seed-OSS: a Llama with biases on q, k and v, and its own switch for the output projection's."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.config.fields import Fields
from runtime.models import llama
from runtime.models.family import Family
from runtime.models.llama import Config, build, layout
from runtime.tensors.names import without_spares


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    own = {"head_dim": 128, "max_position_embeddings": 524288, "attention_bias": True}
    common = llama.parse({**own, **fields.raw, "model_type": "llama"})
    return replace(
        common,
        qkv_bias=fields.flag("attention_bias", True),
        output_bias=fields.flag("attention_out_bias"),
    )


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares)
