"""MiniCPM 1, 2 and 4 (dense): Granite's multipliers, told in other units."""

from collections.abc import Mapping
from typing import Any

from runtime.models import granite
from runtime.models.config import Fields
from runtime.models.decoder_config import layer_count
from runtime.models.family import Family
from runtime.models.granite import Config, adapt, build, layout

__all__ = ["Config", "adapt", "build", "layout", "parse"]

_DENSE = ("num_experts", "sparse_config")
"""What files of mixtures and of sparse attention have."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("minicpm",))
    for name in _DENSE:
        if fields.raw.get(name):
            fields.refuse(name, "none: what it asks for is not computed here")
    hidden = fields.count("hidden_size", high=1 << 20)
    heads = fields.count("num_attention_heads", high=4096)
    own = {
        "tie_word_embeddings": True,
        **fields.raw,
        "model_type": "granite",
        "attention_multiplier": (hidden / heads) ** -0.5,
        "embedding_multiplier": fields.number("scale_emb", 1.0),
        "residual_multiplier": fields.number("scale_depth", 1.0) * layer_count(fields) ** -0.5,
        "logits_scaling": hidden / fields.number("dim_model_base", 1.0, low=1e-6),
    }
    return granite.parse({name: value for name, value in own.items() if name != "head_dim"})


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
