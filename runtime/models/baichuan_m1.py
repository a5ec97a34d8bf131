"""Baichuan M1: keys and values are mixed with those of the token before, each head's by two weights.

Layers with a window have other heads than those without. So each layer remembers two things: the last token's
keys and values as they were made, and all of them mixed and turned. The head's rows are normed, as those of
Baichuan 2 are.

Sources: arXiv 2502.12671; the authors' modeling_baichuan.py of Baichuan-M1-14B.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

import mlx.core as mx

from runtime.cache.layout import LayerSpec, Recurrent, State
from runtime.cache.protocol import AttentionCache, Caches, Rotate, ScanningCache, by_layer
from runtime.config.decoder import (
    DecoderConfig,
    key_heads,
    layer_count,
    listed_layers,
    one_rope,
    read_shape,
)
from runtime.config.fields import Fields
from runtime.models.baichuan import HEAD_FILES, normed_head
from runtime.models.family import Family
from runtime.nn.attention.attend import attend
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.positions.rope import Rope
from runtime.nn.recurrent.conv import CausalConv
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, Trunk, attention_layout, gated_mlp, layer_ropes, rms_norms

TAPS = 2


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    window_heads: tuple[int, int]
    """Of queries, and of keys and values, in layers with a window."""
    unit_head: bool = True
    """As Baichuan 2's."""

    def of_layer(self, place: int) -> "Config":
        """With that layer's own heads."""
        if self.windows[place] is None:
            return self
        heads, groups = self.window_heads
        return replace(self, heads=heads, kv_heads=groups, head_dim=self.hidden_size // heads)


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("baichuan_m1",))
    fields.count("conv_window", TAPS, low=TAPS, high=TAPS)
    own = Fields({name: value for name, value in fields.raw.items() if name != "head_dim"})
    shape, layers = read_shape(own, max_position_embeddings=32768), layer_count(fields)
    if shape["tied"]:
        fields.refuse("tie_word_embeddings", "false: a head that is normed is not a table of embeddings")
    heads = fields.count("num_swa_attention_heads", shape["heads"], high=4096)
    groups = key_heads(fields, heads, shape["kv_heads"], name="num_swa_key_value_heads")
    for name, count in (("num_attention_heads", shape["heads"]), ("num_swa_attention_heads", heads)):
        if shape["hidden_size"] % count:
            fields.refuse(name, f"a divisor of hidden_size, {shape['hidden_size']}")
    slides = listed_layers(fields, "sliding_window_layers", layers) or (False,) * layers
    window = fields.count("sliding_window") if any(slides) else None
    near = {**shape, "head_dim": shape["hidden_size"] // heads}
    ropes = one_rope(own, shape, theta=1e5), one_rope(own, near, theta=1e5)
    return Config(
        **shape,
        windows=tuple(window if one else None for one in slides),
        ropes=tuple(ropes[one] for one in slides),
        window_heads=(heads, groups),
    )


def layout(config: Config) -> list[LayerSpec]:
    specs: list[LayerSpec] = []
    for place, window in enumerate(config.windows):
        own = replace(config.of_layer(place), windows=(window,))
        specs += [Recurrent({"conv": State((TAPS - 1, 2 * own.kv_heads * own.head_dim))})]
        specs += attention_layout(own)
    return specs


class Attention(FusedAttention):
    memories: ClassVar[int] = 2
    """See `runtime.ranks.rules`."""

    def __init__(self, shape: Config, rope: Rope | None) -> None:
        super().__init__(shape, rope)
        self.conv = CausalConv(2 * shape.kv_heads * shape.head_dim, TAPS, bias=False)

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        """cache: both of the layer's (`PairedTrunk`)."""
        last, memory = cast("tuple[ScanningCache, AttentionCache]", cache)
        queries, *made = self.flat(x, step)
        keys, values = mx.split(last_scan(last, step, self.conv, mx.concatenate(made, axis=-1)), 2, axis=-1)
        scale, size = self._scale, self._head_dim
        return attend(step, memory, queries, keys, values, scale=scale, rope=self._rope, size=size)


def last_scan(last: ScanningCache, step: Step, conv: CausalConv, both: mx.array) -> mx.array:
    def scan(
        states: dict[str, mx.array], both: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        mixed, before = conv(both, states["conv"], counts)
        return mixed, {"conv": before}

    return last.scan(step, scan, both)


class PairedTrunk(Trunk):
    def __call__(self, step: Step, caches: Caches) -> mx.array:
        pairs: Any = by_layer(caches, 2)
        return super().__call__(step, pairs)


class BaichuanM1(CausalLM):
    @property
    def shifts(self) -> list[Rotate | None]:
        return []


def build(config: Config) -> BaichuanM1:
    norm = rms_norms(config)
    layers = [
        PreNorm(Attention(config.of_layer(place), rope), gated_mlp(config), norm)
        for place, rope in enumerate(layer_ropes(config))
    ]
    return BaichuanM1(config, layers, norm(), trunk=PairedTrunk)


_NAMES = ((".self_attn.W_pack.", ".self_attn.qkv_proj."),)
_FILTERS = ".self_attn.conv_k", ".self_attn.conv_v"


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Filters of G heads, [1, 1, G, 1, taps], to those of their channels, keys before values."""
    adapted = normed_head(respelled(without_spares(config, weights), _NAMES))
    for place in range(config.layers):
        own, at = config.of_layer(place), f"model.layers.{place}"
        parts = [adapted.pop(at + name).reshape(-1, TAPS, 1) for name in _FILTERS if at + name in adapted]
        found = [mx.repeat(part, own.head_dim, axis=0) for part in parts]
        if found:
            adapted[f"{at}.self_attn.conv.weight"] = mx.concatenate(found)
    return adapted


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(rows=HEAD_FILES)),
)
