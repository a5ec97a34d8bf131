"""What config.json says of Inkling 2, and of Inkling 2 Mini, whose middle layers are passed several times."""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec, Stateless
from runtime.config.decoder import layer_count, read_shape
from runtime.config.fields import Fields
from runtime.models.inkling_config import (
    Growing,
    HybridConfig,
    hybrid_layout,
    read_growing,
    read_hybrid,
    real_ids,
)
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Loop:
    start: int
    stop: int
    passes: int
    rank: int
    """Of the gates by which layers hear the pass before."""

    @property
    def layers(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Config(HybridConfig):
    growing: Growing
    """In layers without a window."""
    longest: tuple[float, float]
    """Of heads of queries and keys, and of what they like: their greatest length."""
    block: int
    """Layers of one."""
    caps: tuple[float, float, float]
    """Of an expert's gate and of what is gated, and of logits."""
    loop: Loop | None

    @property
    def blocks(self) -> int:
        """How many there are."""
        return -(-self.layers // self.block)

    @property
    def looped(self) -> range:
        """Which layers are passed several times."""
        return range(0) if self.loop is None else range(self.loop.start, self.loop.stop)

    @property
    def passes(self) -> int:
        return self.loop.passes if self.loop is not None and self.looped else 1

    @property
    def heard(self) -> int:
        """States that a pass tells the next one."""
        return len(self.looped) // self.block if self.passes > 1 else 0

    def turns(self, place: int) -> range:
        """In which passes this layer is computed."""
        first = self.passes - 1 if place >= self.looped.stop else 0
        return range(first, self.passes if place >= self.looped.start else 1)


_SMALL = {"hidden_size": 4608, "num_attention_heads": 48, "moe_intermediate_size": 2304}
_MINI = {"hidden_size": 2304, "num_attention_heads": 24, "moe_intermediate_size": 1152}
_OTHERS = {"inkling2_text": (48, 384, 128000), "inkling2_loop_text": (24, 128, 8192)}
"""Layers, experts, and from where on queries grow."""
LAYERS = {kind: others[0] for kind, others in _OTHERS.items()}
"""Of a file that does not say."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields({**raw, "tie_word_embeddings": False})
    kind = fields.choice("model_type", tuple(_OTHERS))
    fields.choice("scoring_func", ("sigmoid",), "sigmoid")
    loops, (many, experts, floor) = kind == "inkling2_loop_text", _OTHERS[kind]
    sizes = _MINI if loops else _SMALL
    layers = layer_count(fields, many)
    heads = sizes["num_attention_heads"]
    block = fields.count("n_layers_per_attn_res_block", 6)
    return Config(
        **_shape(fields, sizes),
        **read_hybrid(fields, layers, window=1024, heads=heads, groups=8, experts=experts, chosen=8),
        growing=read_growing(fields, floor),
        longest=(
            fields.number("qk_l2_clip_threshold", 22.627416997969522, low=1e-6),
            fields.number("rel_l2_clip_threshold", 8.0, low=1e-6),
        ),
        block=block,
        caps=(
            fields.number("mlp_gate_softcap", 4.0, low=1e-6),
            fields.number("mlp_up_softcap", 25.0, low=1e-6),
            fields.number("final_logit_softcapping", 30.0, low=1e-6),
        ),
        loop=_loop(fields, layers, block) if loops else None,
    )


def _shape(fields: Fields, sizes: Mapping[str, int]) -> dict[str, Any]:
    """All layers have experts, so the MLP's size is that of one of them."""
    inner = fields.count("moe_intermediate_size", sizes["moe_intermediate_size"], high=1 << 22)
    shape = read_shape(
        Fields({**fields.raw, "intermediate_size": inner}),
        activations=("silu",),
        vocab_size=201024,
        hidden_size=sizes["hidden_size"],
        num_attention_heads=sizes["num_attention_heads"],
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=1048576,
    )
    return {**shape, "vocab_size": real_ids(fields, shape["vocab_size"], 200058)}


_IN_BLOCK = {
    "loop_layer_index_start": "core_start",
    "loop_layer_index_end": "core_end",
    "loop_num_passes": "num_passes",
    "loop_gate_rank": "gate_rank",
}


def _loop(fields: Fields, layers: int, block: int) -> Loop:
    """Published files say it in `loop_config`."""
    inside = fields.block("loop_config").raw
    said = {name: inside[theirs] for name, theirs in _IN_BLOCK.items() if theirs in inside}
    fields = Fields({**fields.raw, **said})
    start = fields.count("loop_layer_index_start", 6, high=layers)
    stop = fields.count("loop_layer_index_end", 18, low=start, high=layers)
    for name, place in (("loop_layer_index_start", start), ("loop_layer_index_end", stop)):
        if place % block:
            fields.refuse(name, f"a multiple of n_layers_per_attn_res_block, {block}")
    passes = fields.count("loop_num_passes", 3, high=64)
    return Loop(start, stop, passes, fields.count("loop_gate_rank", 64, high=1 << 16))


def layout(config: Config) -> list[LayerSpec]:
    """Of every layer four memories for each pass; nothing for those that it is not of."""
    specs, found = hybrid_layout(config), list[LayerSpec]()
    for place in range(config.layers):
        own, times = specs[4 * place : 4 * place + 4], len(config.turns(place))
        found += own * times + [Stateless()] * 4 * (config.passes - times)
    return found
