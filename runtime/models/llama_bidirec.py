"""Llama that looks both ways, for embeddings, as NVIDIA publishes it (llama-nemotron-embed).

A text's vector is the mean of its tokens', as of every model that looks both ways: another `pooling` is
refused. Source: the modeling code in its files, and NeMo AutoModel's.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.config.fields import Fields
from runtime.models import llama
from runtime.models.family.both_ways import looking_ahead
from runtime.models.llama import Config


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.only({"is_causal": False})
    fields.choice("pooling", ("avg",), "avg")
    return llama.read(fields, "llama")


FAMILY = looking_ahead(replace(llama.FAMILY, parse=parse))
