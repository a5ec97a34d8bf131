"""DeepSeek V2, V3, V3.2 (also Kimi K2, Moonlight), GLM-4.7 Flash, GLM-5, A.X K1 and K2, and Sarvam
105B: latent attention, many small experts.

The first layers are dense, the rest ask a few of many experts besides shared ones that always answer. V2
routes by a softmax, within the best groups of experts if told so; the others by sigmoids with a correction
of the choice, in groups. V3.2 and GLM-5 add an indexer that picks the tokens each query looks at; layers of
GLM-5 may look at what an earlier one's has picked. A.X K1 norms what mixtures answer. A.X K2 has V3.2's
indexer, gates on what heads see and, of low rank, on most norms. Files of V3 and GLM hold draft heads behind
the last layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache, StepCache
from runtime.config.decoder import layer_count, read_shape, sparse_layers
from runtime.config.expert_groups import read_groups
from runtime.config.fields import Fields, whole_heads
from runtime.config.indexer import read_choosers, read_index
from runtime.config.latent import latent_rope, read_latent
from runtime.errors import UnsupportedModel
from runtime.models.family import CORRECTIONS, Family, Head
from runtime.nn.attention.gated_mla import GatedNorm, GatedQueries
from runtime.nn.attention.indexer import IndexShape
from runtime.nn.attention.mla import LatentAttention, LatentShape
from runtime.nn.layer import FeedForward, Layer
from runtime.nn.module import Module
from runtime.nn.norm import Norm, Normalize
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.block import NormedSublayer, PreNorm
from runtime.nn.residual.sublayer import added
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.latent_heads import split_latent_heads
from runtime.tensors.names import spelled, without_spares
from runtime.trunks.decoder import CausalLM, rms_norms
from runtime.trunks.draft_heads import DraftHead, Predictor, head_only, without_head
from runtime.trunks.mixture import (
    MixtureConfig,
    MixtureSpec,
    corrected_mixture,
    feed_forward,
    softmax_mixture,
)

_INDEXED = ("axk2", "deepseek_v32", "glm_moe_dsa")
_FAMILIES = ("axk1", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2", "sarvam_mla", *_INDEXED)


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    latent: LatentShape
    rope: RopeSpec
    """Of the part of queries and keys that is rotated."""
    index_rope: RopeSpec | None
    """Of the indexer; None: no indexer."""
    choosers: tuple[int, ...]
    """Of each layer: the one whose indexer chooses what it looks at, itself or an earlier one."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    softmax: bool
    """V2's router: a softmax over all experts, else sigmoids with a correction of the choice."""
    draft_heads: int
    """Stored behind the last layer; 0: none."""
    norm_behind: bool
    """Of what mixtures answer."""
    gate_rank: int | None
    """Of the gates on norms; None: none, nor on what heads see."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(_with_yarn(raw))
    family = fields.choice("model_type", _FAMILIES)
    flash, second, fifth = (family == name for name in ("glm4_moe_lite", "deepseek_v2", "glm_moe_dsa"))
    shape = read_shape(
        fields,
        eps=1e-5 if flash or fifth else 1e-6,
        max_position_embeddings=_LENGTHS.get(family, 4096),
        num_key_value_heads=128,
    )
    layers = layer_count(fields)
    fields.only({"mlp_bias": False})
    if flash:  # whose class cuts the rotation by it, and not what it turns
        whole_heads(fields.rope_parameters())
    latent, rope = read_latent(fields, shape, traditional=True if second else None, **_SIZES.get(family, {}))
    index_rope = None
    if family in _INDEXED:
        latent = replace(latent, index=_index(fields, layers, latent.position, family))
        index_rope = latent_rope(fields.rope_parameters(), shape, latent.position, traditional=fifth)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        latent=latent,
        rope=rope,
        index_rope=index_rope,
        choosers=read_choosers(fields, layers) if fifth else tuple(range(layers)),
        sparse=_sparse(fields, layers, _DENSE.get(family, 3)),
        mixture=_mixture(fields, family),
        softmax=second,
        draft_heads=0 if second else fields.count("num_nextn_predict_layers", 0, low=0, high=16),
        norm_behind=family == "axk1",
        gate_rank=fields.count("gated_norm_rank", 16, high=1 << 16) if family == "axk2" else None,
    )


def _with_yarn(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Sarvam's files have another word for it."""
    block = raw.get("rope_scaling")
    if raw.get("model_type") != "sarvam_mla" or not isinstance(block, Mapping):
        return raw
    if "deepseek_yarn" not in (block.get("type"), block.get("rope_type")):
        return raw
    own = {name: value for name, value in block.items() if name != "type"}
    return {**raw, "rope_scaling": {**own, "rope_type": "yarn"}}


# Of transformers' classes, where they are not DeepSeek-V3's.
_LENGTHS = {
    "axk1": 32768,
    "axk2": 131072,
    "deepseek_v2": 2048,
    "deepseek_v32": 163840,
    "glm4_moe_lite": 202752,
    "glm_moe_dsa": 202752,
}
_SIZES: dict[str, dict[str, Any]] = {
    "glm4_moe_lite": {"ranks": (768, 512), "sizes": (192, 64, 256)},
    "glm_moe_dsa": {"ranks": (2048, 512), "sizes": (192, 64, 256)},
    "axk2": {"ranks": (384, 128), "sizes": (64, 32, 64)},
    "sarvam_mla": {"ranks": (None, 512)},
}
_DENSE = {"axk1": 1, "axk2": 1, "deepseek_v2": 0, "glm4_moe_lite": 1, "sarvam_mla": 1}


def _index(fields: Fields, layers: int, position: int, family: str) -> IndexShape:
    if fields.raw.get("q_lora_rank", 1536) is None:
        fields.refuse("q_lora_rank", "a rank, from which the indexer reads")
    return read_index(fields, layers, position, heads={"axk2": 16, "glm_moe_dsa": 32}.get(family, 64))


def _sparse(fields: Fields, layers: int, dense: int) -> tuple[bool, ...]:
    fields.count("moe_layer_freq", 1, high=1)
    return sparse_layers(fields, layers, dense)


# What transformers' classes take where a file does not say: groups, open groups, scale, shared experts.
_ROUTED = {
    "axk2": (1, 1, 2.5, 1),
    "deepseek_v2": (1, 1, 1.0, 2),
    "glm4_moe_lite": (1, 1, 1.8, 1),
    "glm_moe_dsa": (1, 1, 2.5, 1),
    "sarvam_mla": (1, 1, 2.5, 1),
}
_ROUTED_V3 = (8, 4, 2.5, 1)


def _mixture(fields: Fields, family: str) -> MixtureSpec:
    """Refuses what no published file of the family asks for and transformers computes in another way."""
    softmax = family == "deepseek_v2"
    of, opened, scale, shared = _ROUTED.get(family, _ROUTED_V3)
    method = fields.choice(
        "topk_method",
        ("greedy", "group_limited_greedy") if softmax else ("noaux_tc",),
        "greedy" if softmax else "noaux_tc",
    )
    fields.choice(
        "scoring_func", ("softmax",) if softmax else ("sigmoid",), "softmax" if softmax else "sigmoid"
    )
    normalize = fields.flag("norm_topk_prob", not softmax)
    if softmax and normalize:
        raise UnsupportedModel("config.json: norm_topk_prob is true, which DeepSeek V2 is not computed with")
    inner = fields.count("moe_intermediate_size", 1407 if softmax else 2048, high=1 << 22)
    experts = fields.count("n_routed_experts", fields.count("num_local_experts", 64), high=1 << 16)
    grouped = method != "greedy"
    chosen = fields.count("num_experts_per_tok", high=experts)
    judges = 1 if softmax else 2
    groups, top_groups = (1, 1)
    if grouped:
        groups, top_groups = read_groups(
            fields, experts, chosen, default=of, open_by_default=opened, judges=judges
        )
    return MixtureSpec(
        experts=experts,
        chosen=chosen,
        inner=inner,
        shared=inner * fields.count("n_shared_experts", shared, low=0, high=256),
        groups=groups,
        top_groups=top_groups,
        normalize=normalize,
        scale=fields.number("routed_scaling_factor", scale),
    )


def layout(config: Config) -> list[LayerSpec]:
    return [_latent_of(config, place, chooser).memory for place, chooser in enumerate(config.choosers)]


def _latent_of(config: Config, place: int, chooser: int) -> LatentShape:
    return config.latent if place == chooser else replace(config.latent, own_index=False)


def _mlp(config: Config, *, sparse: bool) -> FeedForward:
    # Of each group of V2's experts only the best one judges it.
    mixture = partial(softmax_mixture, judges=1) if config.softmax else corrected_mixture
    return feed_forward(config, sparse=sparse, mixture=mixture)


class NormedMixture(PreNorm):
    """What the mixture answers is normed."""

    def __init__(self, attention: LatentAttention, mlp: FeedForward, norm: Norm) -> None:
        super().__init__(attention, mlp, norm)
        self.post_mlp_layernorm: Normalize = norm()

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self.self_attn, step, cache, norm=self.input_layernorm)
        return added(x, self.mlp, step, norm=self.post_attention_layernorm, after=self.post_mlp_layernorm)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        attention, _ = super().sublayers()
        return attention, (self.mlp, self.post_attention_layernorm, self.post_mlp_layernorm)


class GatedNorms(Module):
    """Of a layer whose first norm has a gate, and whose second has one where a mixture is behind it."""

    def __init__(self, config: Config, attention: LatentAttention, mlp: FeedForward, *, sparse: bool) -> None:
        super().__init__()
        norm, rank = rms_norms(config), config.gate_rank
        assert rank is not None
        self.self_attn, self.mlp = attention, mlp
        self.input_layernorm = GatedNorm(norm(), config.hidden_size, rank)
        self.post_attention_layernorm: GatedNorm | Normalize = (
            GatedNorm(norm(), config.hidden_size, rank) if sparse else norm()
        )

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x, step), step, cache)
        if isinstance(self.post_attention_layernorm, GatedNorm):
            return x + self.mlp(self.post_attention_layernorm(x, step), step)
        return added(x, self.mlp, step, norm=self.post_attention_layernorm)


def _blocks(config: Config, sparse: Sequence[bool], choosers: Sequence[int]) -> list[Layer]:
    rope = Rope(config.rope)
    index_rope = None if config.index_rope is None else Rope(config.index_rope)

    def block(place: int, chooser: int, *, sparse: bool) -> Layer:
        attention = LatentAttention if config.gate_rank is None else GatedQueries
        own = attention(_latent_of(config, place, chooser), rope, index_rope, chooser)
        mlp = _mlp(config, sparse=sparse)
        if config.gate_rank is not None:
            return GatedNorms(config, own, mlp, sparse=sparse)
        return (NormedMixture if sparse and config.norm_behind else PreNorm)(own, mlp, rms_norms(config))

    return [
        block(place, chooser, sparse=kind)
        for place, (kind, chooser) in enumerate(zip(sparse, choosers, strict=True))
    ]


def build(config: Config) -> CausalLM:
    return CausalLM(config, _blocks(config, config.sparse, config.choosers), rms_norms(config)())


def adapt(config: Config, weights: Weights) -> Weights:
    """The target's tensors; the draft heads' are `adapt_head`'s."""
    named = {name.replace(".mlp.post_mlp_", ".post_mlp_"): array for name, array in weights.items()}
    named = _gated(config, without_spares(config, named))
    own = without_head(named, config.layers, config.draft_heads)
    return split_latent_heads(to_switch(own, config.mixture.experts), config.latent)


_GATED = (
    (".W_down.", ".mlp.fc1."),
    (".W_up.", ".mlp.fc2."),
    (".self_attn.q_b_proj.", ".self_attn.q_gate_proj."),
)
"""Of A.X K2's files."""


def _gated(config: Config, weights: Weights) -> Weights:
    pairs = () if config.gate_rank is None else _GATED
    return {spelled(name, pairs): array for name, array in weights.items()}


def build_head(config: Config) -> DraftHead:
    heads = config.draft_heads
    blocks = _blocks(config, (True,) * heads, range(heads))
    return DraftHead([Predictor(config.hidden_size, config.norm_eps, block) for block in blocks])


def head_layout(config: Config) -> list[LayerSpec]:
    return [config.latent.memory] * config.draft_heads


def adapt_head(config: Config, weights: Weights) -> Weights:
    """The draft heads' tensors, {} when the file has none."""
    own = head_only(_gated(config, weights), config.layers, config.draft_heads)
    return split_latent_heads(to_switch(own, config.mixture.experts), config.latent)


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(heads_behind=True, modules=_GATED if config.get("model_type") == "axk2" else ())


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=CORRECTIONS,
    head=Head(layout=head_layout, build=build_head, adapt=adapt_head),
    checkpoint=_checkpoint,
)
