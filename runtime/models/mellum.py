"""Mellum 2: Qwen3-MoE, some of whose layers look through a window and turn by a rule of their own.

Draft heads in its files (`mtp`) are computed by nobody yet: transformers leaves them out, and so do we.
"""

from collections.abc import Mapping
from typing import Any

from runtime.config.decoder import layer_count, read_shape, read_windows, two_ropes
from runtime.config.fields import Fields
from runtime.config.rope_block import is_keyed, only_repeats
from runtime.models.family import Family
from runtime.models.qwen_moe import Config, adapt, build, layout
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.trunks.mixture import MixtureSpec


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("mellum",))
    shape = read_shape(
        fields,
        intermediate_size=7168,
        num_key_value_heads=4,
        head_dim=128,
        max_position_embeddings=131072,
    )
    layers = layer_count(fields)
    windows = read_windows(fields, layers, full_every=1, window=fields.count("sliding_window", 1024))
    if fields.has("rope_scaling") and not only_repeats(fields.raw):
        fields.refuse("rope_scaling", "none: here rope_parameters has a block for each type of layer")
    if fields.has("rope_theta") and not is_keyed(fields.raw):
        fields.refuse("rope_theta", "none: here rope_parameters has a block for each type of layer")
    kinds = fields.words("mlp_layer_types", layers, ("dense", "sparse")) or ("sparse",) * layers
    experts = fields.count("num_experts", 64, high=1 << 16)
    return Config(
        **shape,
        windows=windows,
        ropes=two_ropes(fields, shape, windows, theta=500000.0, local_theta=10000.0, local_field=None),
        sparse=tuple(kind == "sparse" for kind in kinds),
        mixture=MixtureSpec(
            experts=experts,
            chosen=fields.count("num_experts_per_tok", 8, high=experts),
            inner=fields.count("moe_intermediate_size", 896, high=1 << 22),
            normalize=fields.flag("norm_topk_prob", True),
        ),
        bias=fields.flag("attention_bias"),
    )


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(heads=("mtp.",))),
)
