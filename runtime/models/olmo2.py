"""OLMo 2, OLMo 3 and EXAONE 4: norms after the sublayers only, and on queries and keys.

OLMo norms the whole projection, before it is cut into heads; EXAONE norms each head. OLMo 3 and EXAONE 4 have
sliding layers: OLMo 3 stretches positions in full layers only, EXAONE leaves them out there (NoPE).
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import (
    DecoderConfig,
    layer_count,
    one_rope,
    read_shape,
    read_windows,
    two_ropes,
    without_windows,
)
from runtime.config.fields import Fields
from runtime.config.rope_block import is_keyed
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.attention.self_attention import HeadNormAttention, SelfAttention, WideNormAttention
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.block import PostNorm
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, head_norms, layer_ropes, rms_norms

_THETA = 500000.0  # of OLMo 3


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    head_norm: bool
    bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    family = fields.choice("model_type", ("olmo2", "olmo3", "exaone4"))
    if fields.has("clip_qkv"):
        raise UnsupportedModel("config.json: clip_qkv is set, and clipped projections are not computed")
    shape = read_shape(fields, eps=1e-5)
    windows = _windows(fields, family, layer_count(fields))
    return Config(
        **shape,
        windows=windows,
        ropes=_ropes(fields, family, shape, windows),
        head_norm=family == "exaone4",
        bias=family != "exaone4" and fields.flag("attention_bias"),
    )


def _windows(fields: Fields, family: str, layers: int) -> tuple[int | None, ...]:
    if family == "olmo2":
        return (None,) * layers
    if family == "exaone4" and fields.raw.get("sliding_window", 4096) is None:
        return without_windows(fields, layers)
    window = fields.count("sliding_window", 4096)
    return read_windows(fields, layers, full_every=full_every(fields), window=window)


def full_every(fields: Fields) -> int:
    """EXAONE writes its pattern as a number, or as letters of which the last is G (global): LLLG."""
    pattern = fields.raw.get("sliding_window_pattern")
    if not isinstance(pattern, str):
        return fields.count("sliding_window_pattern", 4)
    if pattern != "L" * (len(pattern) - 1) + "G":
        raise UnsupportedModel(
            f"config.json: sliding_window_pattern is {quoted(pattern)}, expected letters L and a final G"
        )
    return len(pattern)


def _ropes(
    fields: Fields, family: str, shape: dict[str, Any], windows: tuple[int | None, ...]
) -> tuple[RopeSpec | None, ...]:
    if family == "olmo2":
        return (one_rope(fields, shape),) * len(windows)
    if family == "exaone4":
        rope = one_rope(fields, shape)
        if fields.raw.get("sliding_window", 4096) is None:  # a model that never slides rotates everywhere
            return (rope,) * len(windows)
        return tuple(None if window is None else rope for window in windows)
    if not is_keyed(fields.raw) and fields.number("rope_theta", _THETA) != _THETA:
        # transformers 4 turned all layers by it, transformers 5 turns those without a window.
        fields.refuse("rope_theta", f"{_THETA:g}, or rope_parameters with a block for each type of layer")
    return two_ropes(fields, shape, windows, theta=_THETA, local_theta=_THETA, local_field=None)


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    def attention(rope: Rope | None) -> SelfAttention:
        if config.head_norm:
            return HeadNormAttention(config, rope, head_norms(config))
        return WideNormAttention(config, rope, config.norm_eps, qkv_bias=config.bias, output_bias=config.bias)

    norm = rms_norms(config)
    layers = [PostNorm(attention(rope), gated_mlp(config), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm())


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares)
