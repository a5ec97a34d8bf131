"""Dots 3 Note: latent attention with a gate for each head, under an indexer in some layers and in a window in
the others, whose heads have sizes of their own; DeepSeek's experts. Published in a wrapper for images and
sound.

The normed vectors that queries, keys and values are made of are multiplied by the root of the hidden size
over theirs: here, the weights of these norms are. What carries position in a key is normed before it turns.

Source: transformers modeling_dots3_note.py, configuration_dots3_note.py.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec, Rotating
from runtime.config.decoder import layer_count, read_shape
from runtime.config.fields import Fields
from runtime.config.latent import latent_rope, latent_shape
from runtime.config.rope_block import one_of_several
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.attention.gated_mla import GatedLatentAttention
from runtime.nn.attention.indexer import IndexShape
from runtime.nn.attention.mla import LatentShape
from runtime.nn.linear import linear
from runtime.nn.norm import RMSNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.latent_heads import split_latent_heads
from runtime.tensors.names import text_tensors
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import CausalLM, rms_norms
from runtime.trunks.mixture import MixtureConfig, MixtureSpec, feed_forward, read_mixture

_KINDS = ("full_attention", "indexed_attention", "sliding_attention")
_SLIDING = {
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "head_dim": 256,
    "qk_nope_head_dim": 192,
    "v_head_dim": 128,
}
"""Sizes of layers in a window that a file does not say."""


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    latents: tuple[LatentShape, ...]
    """Of each layer."""
    turns: tuple[RopeSpec, ...]
    """Of each layer: how the part that carries position is rotated."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.only({"mlp_bias": False})
    shape = read_shape(
        fields,
        eps=1e-5,
        vocab_size=152064,
        hidden_size=5120,
        intermediate_size=13824,
        num_attention_heads=128,
        num_key_value_heads=128,
        head_dim=256,
        max_position_embeddings=524288,
    )
    kinds = _kinds(fields, layer_count(fields, 46))
    own = {kind: _of_kind(fields, shape, kind, kinds) for kind in set(kinds)}
    window = fields.count("sliding_window", fields.count("sliding_window_size", 512))
    return Config(
        **shape,
        windows=tuple(window if kind == "sliding_attention" else None for kind in kinds),
        ropes=tuple(own[kind][1] for kind in kinds),
        latents=tuple(own[kind][0] for kind in kinds),
        turns=tuple(own[kind][1] for kind in kinds),
        sparse=_sparse(fields, len(kinds)),
        mixture=_mixture(fields),
    )


def _kinds(fields: Fields, layers: int) -> tuple[str, ...]:
    """Released files call layers under the indexer full, unless use_dsa is false."""
    under = fields.flag("use_dsa", True)
    kinds = fields.words("layer_types", layers, _KINDS)
    if kinds is None:
        slides = fields.flag("use_sliding_window", True)
        kinds = tuple(_KINDS[2] if slides and i >= 2 and i % 4 != 1 else _KINDS[under] for i in range(layers))
    elif "use_dsa" in fields.raw or "per_layer_config" not in fields.raw:
        kinds = tuple(kind if kind == _KINDS[2] else _KINDS[under] for kind in kinds)
    fields.take("layer_types", list(kinds))
    return kinds


def _of_kind(
    fields: Fields, shape: dict[str, Any], kind: str, kinds: tuple[str, ...]
) -> tuple[LatentShape, RopeSpec]:
    own, size = fields, shape
    if kind == "sliding_attention":
        own = Fields({**fields.raw, **_sliding(fields, kinds)})
        size = {**shape, "heads": own.count("num_attention_heads", high=4096)}
    own.count("num_key_value_heads", size["heads"], low=size["heads"], high=size["heads"])
    if own.raw.get("q_lora_rank", 1024) is None:
        own.refuse("q_lora_rank", "a rank: queries are made in two steps here")
    block = _rope_block(fields, kind)
    latent = latent_shape(own, size, block, ranks=(1024, 512), sizes=(128, 64, 128))
    latent = replace(latent, scale=(latent.content + latent.position) ** -0.5, norm_eps=shape["norm_eps"])
    if kind == "indexed_attention":
        latent = replace(latent, index=_index(fields, latent.position))
    return latent, latent_rope(block, shape, latent.position, traditional=True)


def _sliding(fields: Fields, kinds: tuple[str, ...]) -> dict[str, Any]:
    """What is said of layers in a window: transformers lists them one by one, released files say swa_*."""
    listed = fields.raw.get("per_layer_config")
    if listed is None:
        own = {name: fields.raw.get(f"swa_{name}", default) for name, default in _SLIDING.items()}
        position = fields.count("swa_head_dim", 256) - fields.count("swa_qk_nope_head_dim", 192)
        return {**own, "qk_rope_head_dim": fields.raw.get("swa_qk_rope_head_dim", position)}
    table = listed if isinstance(listed, Mapping) else {"": listed}
    said = {place: own for place, own in table.items() if own}
    sliding = [table.get(str(i)) or {} for i, kind in enumerate(kinds) if kind == "sliding_attention"]
    alike = all(isinstance(own, Mapping) and own == sliding[0] for own in sliding)
    if not alike or len(said) > sum(map(bool, sliding)) or {*sliding[0]} - {"qk_rope_head_dim", *_SLIDING}:
        fields.refuse(
            "per_layer_config",
            "the same sizes for each layer that is sliding_attention in layer_types, and no others",
        )
    return dict(sliding[0])


def _rope_block(fields: Fields, kind: str) -> dict[str, Any]:
    """The share of a head that turns follows from its sizes, whatever the block says of it."""
    if fields.has("rope_scaling"):
        fields.refuse("rope_scaling", "none: rope_parameters has a block for each type of layer")
    blocks = fields.raw.get("rope_parameters")
    if blocks is None:
        sliding = kind == "sliding_attention"
        name, theta = ("swa_rope_theta", 50000.0) if sliding else ("rope_theta", 8e7)
        return {"rope_type": "default", "rope_theta": fields.number(name, theta, low=2.0)}
    inside = blocks.get(kind) if isinstance(blocks, Mapping) else None
    if not isinstance(inside, Mapping) or inside.get("rope_theta") is None:
        fields.refuse("rope_parameters", f"a block {kind} with its rope_theta")
    own = one_of_several(inside, f"rope_parameters.{kind}")
    own.pop("partial_rotary_factor", None)
    return Fields({"rope_parameters": own}, under=f"rope_parameters.{kind}").rope_parameters()


def _index(fields: Fields, position: int) -> IndexShape:
    return IndexShape(
        heads=fields.count("index_n_heads", 64, high=4096),
        size=fields.count("index_head_dim", 128, low=position, high=4096),
        chosen=fields.count("index_topk", 2048),
    )


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    kinds = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    first, listed = fields.count("first_k_dense_replace", 1, low=0), fields.raw.get("moe_layer_freq")
    if isinstance(listed, list):
        if len(listed) != layers or any(one not in (0, 1) for one in listed):
            fields.refuse("moe_layer_freq", f"a number, or {layers} times 0 or 1")
        return tuple(i >= first and bool(one) for i, one in enumerate(listed))
    every = fields.count("moe_layer_freq", 1)
    return tuple(i >= first and i % every == 0 for i in range(layers))


def _mixture(fields: Fields) -> MixtureSpec:
    fields.choice("scoring_func", ("sigmoid",), "sigmoid")
    fields.choice("topk_method", ("noaux_tc",), "noaux_tc")
    spec = read_mixture(fields, experts=256, chosen=8, inner=1536, scale=1.0)
    usual = fields.count("shared_experts_intermediate_size", 1536, high=1 << 22)
    shared = fields.count("moe_shared_expert_intermediate_size", usual, high=1 << 22)
    return replace(spec, shared=shared * fields.count("n_shared_experts", 1, high=1 << 10))


def layout(config: Config) -> list[LayerSpec]:
    return [
        latent.memory if window is None else Rotating(1, latent.rank + latent.position, window, value_dim=0)
        for latent, window in zip(config.latents, config.windows, strict=True)
    ]


class Attention(GatedLatentAttention):
    def __init__(self, shape: LatentShape, rope: Rope, chooser: int) -> None:
        super().__init__(shape, rope, rope, chooser)
        self.k_rope_only_layernorm = RMSNorm(shape.position, eps=shape.norm_eps)

    def _key(self, x: mx.array, step: Step) -> mx.array:
        latent, position = mx.split(
            linear(self.kv_a_proj_with_mqa, x, step)[:, None], [self._shape.rank], axis=-1
        )
        position = self._turned(self.k_rope_only_layernorm(position), step)
        return mx.concatenate([self.kv_a_layernorm(latent), position], axis=-1)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    ropes = {spec: Rope(spec) for spec in set(config.turns)}
    parts = zip(config.latents, config.turns, config.sparse, strict=True)
    layers = [
        PreNorm(Attention(latent, ropes[turns], place), feed_forward(config, sparse=sparse), norm)
        for place, (latent, turns, sparse) in enumerate(parts)
    ]
    return CausalLM(config, layers, norm())


_LAYER = re.compile(r"model\.layers\.(\d{1,6})\.(.+)", re.ASCII)
_HEADS = ("mtp.", "model.mtp.")


def adapt(config: Config, weights: Weights) -> Weights:
    """Without draft heads, which stand behind the last layer or by themselves."""
    kept: Weights = {}
    by_layer: list[Weights] = [{} for _ in config.latents]
    for name, array in text_tensors(config, weights).items():
        found = _LAYER.fullmatch(name)
        if found is None and not name.startswith(_HEADS):
            kept[name] = array
        elif found is not None and int(found[1]) < config.layers:
            by_layer[int(found[1])][name] = _scaled(config, config.latents[int(found[1])], found[2], array)
    for latent, own in zip(config.latents, by_layer, strict=True):
        kept |= split_latent_heads(own, latent)
    return to_switch(kept, config.mixture.experts)


def _scaled(config: Config, latent: LatentShape, name: str, array: mx.array) -> mx.array:
    ranks = {"q_a_layernorm.weight": latent.query_rank, "kv_a_layernorm.weight": latent.rank}
    rank = ranks.get(name.removeprefix("self_attn."))
    return array if rank is None else array.astype(mx.float32) * (config.hidden_size / rank) ** 0.5


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=CORRECTIONS,
    checkpoint=always(Checkpoint(heads=_HEADS, heads_behind=True, towers=USUAL)),
)
