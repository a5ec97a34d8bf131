"""The draft model of Muse Glimmer: a block diffusion draft (see dflash) by other names.

Its tokens see each other in both directions, and its sliding layers look back one token further than `window`
says elsewhere: a token sees keys at a distance of `window`, itself not counted. The target's embeddings enter
as they are in the table, not normed as in the target.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models import dflash
from runtime.models.dflash import BlockDraft
from runtime.models.dflash_config import LARGEST_BLOCK, Config, listed_targets
from runtime.models.family import Family
from runtime.models.muse_glimmer import ROWS
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import spelled


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields({**raw, "vocab_size": 1, "tie_word_embeddings": True})
    shape = read_shape(
        fields,
        eps=1e-5,
        hidden_size=6656,
        intermediate_size=19968,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=131072,
    )
    shape["vocab_size"] = 0
    layers = layer_count(fields, 5)
    window = fields.count("sliding_window", 2048)
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    kinds = kinds or ("sliding_attention",) * layers
    return Config(
        **shape,
        windows=tuple(window + 1 if kind == "sliding_attention" else None for kind in kinds),
        ropes=(one_rope(fields, shape, theta=500000.0),) * layers,
        block=fields.count("block_size", 16, low=2, high=min(window, LARGEST_BLOCK)),
        mask_token=fields.count("mask_token_id", 201818, low=0),
        target_layers=listed_targets(fields, [1, 13, 25, 37, 49]),
        causal=(False,) * layers,
    )


def layout(config: Config) -> list[LayerSpec]:
    return dflash.layout(config)


def build(config: Config) -> BlockDraft:
    return dflash.build(config)


_RENAMED = (("encoder.fc.", "fc."), ("encoder.output_norm_enc.", "hidden_norm."))


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return {spelled(name, _RENAMED): array for name, array in weights.items()}


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(rows=ROWS)),
    drafts_as="block",
)
