"""CWM and Ministral (the first): Llamas most of whose layers look through a window."""

from collections.abc import Mapping
from typing import Any

from runtime.config.decoder import layer_count, one_rope, own_rope, read_shape
from runtime.config.fields import Fields, whole_heads
from runtime.models.family import Family
from runtime.models.llama import Config, build, layout
from runtime.nn.positions.rope_spec import read_rope
from runtime.tensors.names import without_spares

_COMMON: dict[str, Any] = {"max_position_embeddings": 131072, "num_key_value_heads": 8}
"""What both classes of transformers take where a file does not say it."""
_THETA = 1e6
_ROPE = {
    "rope_type": "llama3",
    "rope_theta": _THETA,
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""CWM's, where a file says nothing."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    cwm = fields.choice("model_type", ("cwm", "ministral")) == "cwm"
    shape = read_shape(fields, eps=1e-5, head_dim=128, **_COMMON) if cwm else read_shape(fields, **_COMMON)
    windows = _windows(fields, cwm)
    if cwm:
        sizes = {"head_dim": shape["head_dim"], "max_positions": shape["context_length"]}
        block = own_rope(fields, _ROPE, theta=_THETA)
        if block["rope_type"] == "default":  # for which transformers does not look at the share
            whole_heads(block, "rope_type default")
        rope = read_rope(block, **sizes)
    else:
        rope = one_rope(fields, shape)
    return Config(
        **shape,
        windows=windows,
        ropes=(rope,) * len(windows),
        qkv_bias=False,
        output_bias=False,
        mlp_bias=cwm and fields.flag("mlp_bias"),
        head_norm=False,
    )


def _windows(fields: Fields, cwm: bool) -> tuple[int | None, ...]:
    layers = layer_count(fields)
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    given = fields.raw.get("sliding_window", 8192 if cwm else 4096) is not None
    window = fields.count("sliding_window", 8192 if cwm else 4096) if given else None
    if kinds is None:
        return tuple(None if cwm and i % 4 == 0 else window for i in range(layers))
    if window is None and "sliding_attention" in kinds:
        fields.refuse("layer_types", "full_attention alone, as sliding_window is null")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares)
