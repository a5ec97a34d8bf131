"""Mistral Large 4: DeepSeek's latent attention under an indexer, in layers that may read an earlier one's
latents or look at what it has picked; experts by a softmax. Published inside a wrapper for images.

Queries grow with the logarithm of their position by stored numbers for each head. Most layers turn, by
wavelengths that are scaled by stored numbers, the same for all; the others have no positions.

Source: transformers modeling_mistral_large4.py. The authors' names are those of its conversion_mapping.py.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Shared, Stateless
from runtime.cache.protocol import AttentionCache, Caches, by_layer
from runtime.config.decoder import (
    layer_count,
    own_rope,
    read_shape,
    read_softcap,
    rotated_layers,
    sparse_layers,
)
from runtime.config.fields import Fields
from runtime.config.indexer import read_choosers, read_index
from runtime.config.latent import latent_shape
from runtime.models.family import Family
from runtime.nn.attention.attend import merge_heads, split_heads
from runtime.nn.attention.indexer import Indexer, IndexShape, narrowed
from runtime.nn.attention.mla import LatentAttention, LatentShape, missing_choice
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm, Normalize
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.latent_heads import split_latent_heads
from runtime.tensors.names import spelled, text_tower, without_spares
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import rms_norms
from runtime.trunks.headed import Headed, untied_head
from runtime.trunks.mixture import MixtureConfig, feed_forward, read_mixture, softmax_mixture

_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 2048.0,
    "original_max_position_embeddings": 512,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "attention_factor": 1.0,
}


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    latent: LatentShape
    """Of layers that turn."""
    rope: RopeSpec
    turned: tuple[bool, ...]
    """Of each layer: it has positions."""
    sources: tuple[int, ...]
    """Of each layer: the one whose latents it reads, itself or an earlier one."""
    choosers: tuple[int, ...]
    """Of each layer: the one whose indexer picks what it looks at, itself or an earlier one."""
    sparse: tuple[bool, ...]
    logit_softcap: float | None

    @property
    def index(self) -> IndexShape:
        assert self.latent.index is not None
        return self.latent.index

    def latent_of(self, place: int) -> LatentShape:
        if self.turned[place]:
            return self.latent
        return replace(self.latent, content=self.latent.content + self.latent.position, position=0)


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("mistral_large4_text", "mistral_large4"))
    fields.only({"norm_topk_prob": True, "mlp_bias": False})
    if fields.raw.get("q_lora_rank") is not None:
        fields.refuse("q_lora_rank", "none: queries are made in one step here")
    shape = read_shape(
        fields,
        eps=1e-5,
        vocab_size=204800,
        hidden_size=6144,
        intermediate_size=24576,
        num_attention_heads=64,
        num_key_value_heads=64,
        max_position_embeddings=1048576,
    )
    layers = layer_count(fields, 72)
    block = own_rope(fields, _YARN)
    latent = latent_shape(fields, shape, block, ranks=(None, 512), sizes=(64, 64, 128))
    index = read_index(fields, layers, latent.position, heads=32)
    latent = replace(latent, norm_eps=shape["norm_eps"], index=index)
    rope = read_rope(
        block, head_dim=latent.position, max_positions=shape["context_length"], traditional=True, partial=1.0
    )
    turned = rotated_layers(fields, layers)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=tuple(rope if one else None for one in turned),
        latent=latent,
        rope=rope,
        turned=turned,
        sources=_sources(fields, turned),
        choosers=read_choosers(fields, layers),
        sparse=sparse_layers(fields, layers, 1),
        mixture=read_mixture(fields, experts=128, chosen=4, inner=6144, scale=1.0),
        logit_softcap=read_softcap(fields, "final_logit_softcapping", 30.0),
    )


def _sources(fields: Fields, turned: tuple[bool, ...]) -> tuple[int, ...]:
    """The class hands on the last shared latents of the layers that turn, and of those that do not."""
    listed = fields.raw.get("kv_source_layers")
    if listed is None:
        return tuple(range(len(turned)))
    if not isinstance(listed, list) or [type(one) for one in listed] != [int] * len(turned):
        fields.refuse("kv_source_layers", f"a layer for each of {len(turned)}")
    given: dict[bool, int] = {}
    for place, source in enumerate(listed):
        if source == place and place in listed[place + 1 :]:
            given[turned[place]] = place
        elif source != place and source != given.get(turned[place]):
            fields.refuse(
                "kv_source_layers", "for each layer itself, or the last one of its kind that is shared"
            )
    return tuple(listed)


def layout(config: Config) -> list[LayerSpec]:
    """Of each layer: latents, and keys of its indexer."""
    found: list[LayerSpec] = []
    for place, (source, chooser) in enumerate(zip(config.sources, config.choosers, strict=True)):
        own = replace(config.latent_of(place), index=None).memory
        found.append(own if source == place else Shared(2 * source))
        found.append(Full(1, config.index.size, value_dim=0) if chooser == place else Stateless())
    return found


class Growth(Module):
    """Queries of each head times scale · ln(position + 1) + bias."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.scale = mx.zeros((heads,))
        self.bias = mx.zeros((heads,))

    def __call__(self, queries: mx.array, step: Step) -> mx.array:
        """[B, H, L, D]"""
        long = step.memo("log positions", lambda: mx.log((step.positions + 1).astype(mx.float32)))
        scale, bias = (one.astype(mx.float32)[:, None] for one in (self.scale, self.bias))
        return queries * (scale * long[:, None] + bias)[..., None].astype(queries.dtype)


class Stretch(Module):
    """By what frequencies are multiplied: e to the power of these."""

    def __init__(self, pairs: int) -> None:
        super().__init__()
        self.alpha = mx.zeros((pairs,))


class StretchedRope:
    """A `Rope` whose frequencies are known once weights are loaded."""

    def __init__(self, spec: RopeSpec, stretch: Stretch) -> None:
        self._spec, self._stretch = spec, stretch
        self._made: tuple[mx.array, Rope] | None = None

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return self.rope(x, step)

    @property
    def rope(self) -> Rope:
        alpha = self._stretch.alpha
        if self._made is None or self._made[0] is not alpha:
            powers = cast("list[float]", mx.exp(alpha.astype(mx.float32)).tolist())
            pairs = zip(self._spec.wavelengths, powers, strict=True)
            spec = replace(self._spec, wavelengths=tuple(one / power for one, power in pairs))
            self._made = alpha, Rope(spec)
        return self._made[1]


class GrowingIndexer(Indexer):
    """Its queries are made of what the layer reads."""

    def __init__(self, shape: IndexShape, hidden: int, rope: Any) -> None:
        super().__init__(shape, hidden, hidden, rope)
        self.q_input_norm = LayerNorm(hidden, eps=1e-6)
        self.softmax_scaling = Growth(shape.heads)

    def queries(self, low: mx.array, step: Step) -> mx.array:
        heads = split_heads(linear(self.wq_b, self.q_input_norm(low), step), self._shape.heads)
        return self._rope(self.softmax_scaling(heads, step), step)


Memories = tuple[AttentionCache, AttentionCache]


class Attention(LatentAttention):
    def __init__(self, config: Config, place: int, rope: Any) -> None:
        shape, own_index = config.latent_of(place), config.choosers[place] == place
        super().__init__(replace(shape, index=None), rope, chooser=config.choosers[place])
        self.softmax_scaling = Growth(shape.heads)
        if own_index:
            self.indexer = GrowingIndexer(config.index, shape.hidden, rope or _unturned)
        self._reads = config.sources[place] != place
        if self._reads:
            del self.kv_a_proj_with_mqa, self.kv_a_layernorm

    @property
    def takes_from(self) -> int | None:
        """See LatentAttention."""
        return None if "indexer" in self else self._chooser

    def seen(self, x: mx.array, step: Step, cache: "AttentionCache | Memories") -> mx.array:
        """cache: of latents, and of the indexer's keys."""
        latents, index = cast("Memories", cache)
        content, position = mx.split(self.queries(x, step), [self._shape.content], axis=-1)
        kept = (
            latents.view(step)
            if self._reads
            else latents.append(step, self._remembered(self._key(x, step)), None)
        )
        keys, mask = narrowed(kept[0], kept[2], self._chosen_places(x, step, index))
        return merge_heads(self._attend(content, self._turned(position, step), keys, mask, step))

    def queries(self, low: mx.array, step: Step) -> mx.array:
        return self.softmax_scaling(super().queries(low, step), step)

    def _chosen_places(self, x: mx.array, step: Step, memory: AttentionCache) -> mx.array | None:
        if "indexer" not in self:
            return step.memo(("chosen", self._chooser), missing_choice)
        keys, _, mask = memory.append(step, self.indexer.key(x, step), None)
        return step.memo(("chosen", self._chooser), lambda: self.indexer.choose(x, x, keys, mask, step))


def _unturned(x: mx.array, step: Step) -> mx.array:
    del step
    return x


class Trunk(Module):
    in_turn: ClassVar[str] = "layers"
    for_layers: ClassVar[tuple[str, ...]] = ("rotary_emb",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        norm = rms_norms(config)
        self.rotary_emb = Stretch(config.rope.dims // 2)
        rope = StretchedRope(config.rope, self.rotary_emb)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [
            PreNorm(
                Attention(config, place, rope if turns else None),
                feed_forward(config, sparse=sparse, mixture=softmax_mixture),
                norm,
            )
            for place, (turns, sparse) in enumerate(zip(config.turned, config.sparse, strict=True))
        ]
        self.norm: Normalize = norm()

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        pairs = by_layer(caches, 2)
        return self.norm(ops.table.layers(self.layers, step.embedded(self.embed), step, pairs))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step)


class MistralLarge4(Headed):
    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config), cap=config.logit_softcap)


def build(config: Config) -> MistralLarge4:
    return MistralLarge4(config)


_NAMES = (
    *(("tok_embeddings.", "model.embed_tokens."), ("lerope.", "model.rotary_emb."), ("output.", "lm_head.")),
    *(("layers.", "model.layers."), ("norm.", "model.norm."), ("model.language_model.output.", "lm_head.")),
    *((".tok_embeddings.", ".embed_tokens."), (".lerope.", ".rotary_emb.")),
    *((".attention.", ".self_attn."), (".wq.", ".q_proj."), (".wo.", ".o_proj.")),
    *((".wkv_a_with_mqa.", ".kv_a_proj_with_mqa."), (".wkv_b.", ".kv_b_proj.")),
    *((".attention_norm.", ".input_layernorm."), (".ffn_norm.", ".post_attention_layernorm.")),
    *((".kv_a_norm.", ".kv_a_layernorm."), (".feed_forward.", ".mlp.")),
    *((f".{part}.", f".mlp.{part}.") for part in ("gate", "experts", "switch_mlp", "shared_experts")),
    *((".mlp.mlp.", ".mlp."), (".ssmax_scaling.s", ".softmax_scaling.scale")),
    *((".ssmax_scaling.b", ".softmax_scaling.bias"), (".w1.", ".gate_proj."), (".w2.", ".down_proj.")),
    (".w3.", ".up_proj."),
)
"""The authors' -> those of transformers' class, also where these are inside its wrapper."""


def adapt(config: Config, weights: Weights) -> Weights:
    own = {spelled(name, _NAMES): array for name, array in text_tower(weights).items()}
    own = {name: array for name, array in own.items() if not name.startswith(_HEADS)}
    own = to_switch(without_spares(config, own), config.mixture.experts)
    parts = [{name: x for name, x in own.items() if _turns(config, name) == turns} for turns in (True, False)]
    whole = replace(config.latent, content=config.latent.content + config.latent.position)
    return split_latent_heads(parts[0], config.latent) | split_latent_heads(parts[1], whole)


def _turns(config: Config, name: str) -> bool:
    """Is this a tensor of a layer that turns?"""
    found = _LAYER.match(name)
    return found is not None and int(found[1]) < config.layers and config.turned[int(found[1])]


_LAYER = re.compile(r"model\.layers\.(\d{1,6})\.", re.ASCII)
_TOWERS = replace(
    USUAL,
    projectors=(*USUAL.projectors, "vision_language_adapter.", "pre_mm_projector_norm.", "patch_merger."),
)
_HEADS = ("mtp_dspark.", "model.mtp_dspark.")


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # Scores differ by less than a 16-bit float can tell, and so do wavelengths.
    wide=(".mlp.gate.weight", ".rotary_emb.alpha"),
    checkpoint=always(Checkpoint(towers=_TOWERS, heads=_HEADS, modules=_NAMES)),
)
