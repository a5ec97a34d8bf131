"""EuroBERT: Llama's layers in an encoder that looks both ways, for embeddings.

Sources: arXiv 2503.05500; transformers modeling_eurobert.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family.both_ways import looking_ahead
from runtime.models.llama import FAMILY as LLAMA
from runtime.models.llama import Config


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.only({"is_causal": False})
    layers = layer_count(fields, 12)
    shape = read_shape(
        fields,
        eps=1e-5,
        vocab_size=128256,
        hidden_size=768,
        intermediate_size=3072,
        num_attention_heads=12,
        max_position_embeddings=8192,
    )
    bias = fields.flag("attention_bias")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=fields.flag("mlp_bias"),
        head_norm=False,
    )


FAMILY = looking_ahead(replace(LLAMA, parse=parse))
