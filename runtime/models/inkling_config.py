"""What config.json says of Inkling: layers with a window have other heads, and all convolve. So in
Inkling 2.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import mlx.core as mx

from runtime.cache.layout import LayerSpec, Recurrent, State
from runtime.config.decoder import (
    DecoderConfig,
    key_heads,
    layer_count,
    listed_layers,
    read_shape,
)
from runtime.config.fields import Fields
from runtime.records import dataclass
from runtime.step import Step
from runtime.trunks.decoder import attention_layout


@dataclass(frozen=True, slots=True)
class Growing:
    """Scores of a query at place p are multiplied by 1 + slope * ln((p + 1) / floor), where that is more."""

    slope: float
    floor: int

    def of_step(self, step: Step) -> mx.array | None:
        """float32 [B, 1, L, 1]; None where all are 1."""
        if not step.may_reach(self.floor):
            return None
        return step.memo(self, lambda: self._of_places(step.indices))

    def _of_places(self, places: mx.array) -> mx.array:
        times = mx.maximum((places + 1).astype(mx.float32) / self.floor, 1.0)
        return (1 + self.slope * mx.log(times))[:, None, :, None]


@dataclass(frozen=True, slots=True)
class HybridConfig(DecoderConfig):
    """What both generations say."""

    near: tuple[int, int, int]
    """In layers with a window: heads of queries, of keys and values, and their size."""
    relative: int
    """Numbers by which a query's head says what it likes."""
    extents: tuple[int, ...]
    """Of each layer: how many distances it tells apart."""
    taps: int
    experts: int
    chosen: int
    """Per token."""
    gate_scale: float

    def of_layer(self, place: int) -> Self:
        """With that layer's own heads."""
        if self.windows[place] is None:
            return self
        heads, groups, size = self.near
        return replace(self, heads=heads, kv_heads=groups, head_dim=size)


@dataclass(frozen=True, slots=True)
class Config(HybridConfig):
    growing: Growing | None
    """In layers without a window."""
    sparse: tuple[bool, ...]
    inner: int
    """Of an expert."""
    shared: int
    """Experts that always answer."""
    head_divisor: float


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("inkling_text",))
    fields.only({"shared_expert_sink": True})
    fields = _with_inner_sizes(fields)
    layers = layer_count(fields, 66)
    return Config(
        **_shape(fields),
        **read_hybrid(fields, layers, window=512, heads=64, groups=16, experts=256, chosen=6),
        growing=read_growing(fields, None) if fields.has("log_scaling_n_floor") else None,
        sparse=_sparse(fields, layers),
        inner=fields.count("moe_intermediate_size", 3072, high=1 << 22),
        shared=fields.count("n_shared_experts", 2, high=64),
        head_divisor=fields.number("logits_mup_width_multiplier", 24.0, low=1e-6),
    )


def _with_inner_sizes(fields: Fields) -> Fields:
    """Where a file has `dense_intermediate_size`, its `intermediate_size` is of experts."""
    own, inner = {**fields.raw, "tie_word_embeddings": False}, fields.raw.get("moe_intermediate_size", 3072)
    if fields.has("dense_intermediate_size"):
        inner = fields.count("intermediate_size", 24576, high=1 << 22)
        own["intermediate_size"] = fields.raw["dense_intermediate_size"]
    return Fields({**own, "moe_intermediate_size": inner})


def _shape(fields: Fields) -> dict[str, Any]:
    shape = read_shape(
        fields,
        vocab_size=201024,
        hidden_size=6144,
        intermediate_size=24576,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=131072,
    )
    return {**shape, "vocab_size": real_ids(fields, shape["vocab_size"])}


def real_ids(fields: Fields, rows: int, default: int | None = None) -> int:
    """How many of the rows of table and head stand for an id."""
    return min(fields.count("unpadded_vocab_size", default or rows, high=1 << 24), rows)


def read_hybrid(
    fields: Fields, layers: int, *, window: int, heads: int, groups: int, experts: int, chosen: int
) -> dict[str, Any]:
    """The fields of HybridConfig but those of `read_shape`. window, heads, groups, experts, chosen: what is
    meant where a file leaves it out.
    """
    windows = _windows(fields, layers, window)
    extent = fields.count("rel_extent", 1024, high=1 << 20)
    experts = fields.count("n_routed_experts", experts, high=1 << 16)
    return {
        "windows": windows,
        "ropes": (None,) * layers,
        "near": _near(fields, heads, groups),
        "relative": fields.count("d_rel", 16, high=4096),
        "extents": tuple(extent if window is None else window for window in windows),
        "taps": fields.count("conv_kernel_size", 4, low=2, high=64),
        "experts": experts,
        "chosen": fields.count("num_experts_per_tok", chosen, high=experts),
        "gate_scale": fields.number("route_scale", 8.0),
    }


def _near(fields: Fields, heads: int, groups: int) -> tuple[int, int, int]:
    heads = fields.count("swa_num_attention_heads", heads, high=4096)
    groups = key_heads(fields, heads, min(groups, heads), name="swa_num_key_value_heads")
    return heads, groups, fields.count("swa_head_dim", 128, high=4096)


def _windows(fields: Fields, layers: int, window: int) -> tuple[int | None, ...]:
    """Windows of layers, all of which convolve: by `layer_types`, else by `local_layer_ids`; else every sixth
    layer has none.
    """
    words = "hybrid_sliding", "hybrid"
    kinds = fields.words("layer_types", layers, words)
    if kinds is None:
        near = listed_layers(fields, "local_layer_ids", layers)
        near = tuple((i + 1) % 6 != 0 for i in range(layers)) if near is None else near
        near = fields.settle("layer_types", words, near)
    else:
        near = tuple(kind == "hybrid_sliding" for kind in kinds)
    size = fields.count("sliding_window_size", window)
    return tuple(size if one else None for one in near)


def read_growing(fields: Fields, floor: int | None) -> Growing:
    slope = fields.number("log_scaling_alpha", 0.1, low=0.0)
    return Growing(slope, fields.count("log_scaling_n_floor", floor))


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    kinds, words = fields.words("mlp_layer_types", layers, ("dense", "sparse")), ("sparse", "dense")
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    first = fields.count("dense_mlp_idx", 0, low=0)
    return fields.settle("mlp_layer_types", words, (i >= first for i in range(layers)))


def hybrid_layout(config: HybridConfig) -> list[LayerSpec]:
    specs: list[LayerSpec] = []
    for place, window in enumerate(config.windows):
        own = replace(config.of_layer(place), windows=(window,))
        before = State((config.taps - 1, own.kv_heads * own.head_dim))
        answers = Recurrent({"conv": State((config.taps - 1, config.hidden_size))})
        specs += [Recurrent({"keys": before, "values": before}), *attention_layout(own), answers, answers]
    return specs


def layout(config: Config) -> list[LayerSpec]:
    return hybrid_layout(config)
