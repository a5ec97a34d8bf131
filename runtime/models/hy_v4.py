"""Hunyuan V4: DeepSeek-V3's latent attention and mixtures around several residual streams.

What heads see stands under a gate for each number, and heads have sinks. Indexers pick the tokens that
queries look at, and layers may look at what an earlier one's has picked, as in GLM-5. Of the experts, not of
what always answers, gates and what they multiply are cut off.

Neighbours turn together, and norms of latents have the epsilon of the others: so the authors' code in vLLM,
llama.cpp and transformers' class of the multimodal Hunyuan 4; that of hy_v4 in transformers 5.24 turns halves
and takes 1e-6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache
from runtime.config.decoder import layer_count, read_shape, sparse_layers
from runtime.config.fields import Fields
from runtime.config.indexer import choosers_of
from runtime.config.latent import read_latent
from runtime.models.family import Family
from runtime.nn.activation import sigmoid
from runtime.nn.attention.indexer import IndexShape
from runtime.nn.attention.mla import LatentAttention, LatentShape
from runtime.nn.feed_forward.custom_gate import CustomGateExperts, clipped_before
from runtime.nn.layer import FeedForward, Layer
from runtime.nn.linear import linear
from runtime.nn.norm import Normalize
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.hyper_connections import WIDE, AddingConnection, HyperBlock, HyperHead, Streams
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.latent_heads import split_latent_heads
from runtime.tensors.names import respelled, text_tensors
from runtime.trunks.decoder import CausalLM, Trunk, gated_mlp, rms_norms
from runtime.trunks.mixture import MixtureConfig, corrected_mixture, read_mixture


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    latent: LatentShape
    rope: RopeSpec
    choosers: tuple[int, ...]
    """Of each layer: the one whose indexer chooses what it looks at, itself or an earlier one."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    limit: float | None
    """What gates of experts, and what they multiply, is cut off at; None: nowhere."""
    streams: Streams
    magnitude: float
    """Of the streams' shares of an answer."""


# What transformers' classes take for fields that a file leaves out.
_SMALL = {
    "hidden_size": 2816,
    "intermediate_size": 6912,
    "num_attention_heads": 32,
    "num_hidden_layers": 34,
    "moe_intermediate_size": 768,
    "q_lora_rank": 1536,
    "index_n_heads": 16,
}
_LARGE = {
    "hidden_size": 6144,
    "intermediate_size": 18432,
    "num_attention_heads": 64,
    "num_hidden_layers": 78,
    "moe_intermediate_size": 2048,
    "q_lora_rank": 2048,
    "index_n_heads": 32,
}


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    kind = fields.choice("model_type", ("hy_v4", "hy_v4_vl_text"))
    own = _SMALL if kind == "hy_v4" else _LARGE
    whole = {**fields.raw, "num_key_value_heads": None, "head_dim": None}  # latents have neither
    shape = read_shape(
        Fields(whole),
        eps=1e-5,
        activations=("silu",),
        vocab_size=120832,
        max_position_embeddings=262144,
        hidden_size=own["hidden_size"],
        intermediate_size=own["intermediate_size"],
        num_attention_heads=own["num_attention_heads"],
    )
    layers = layer_count(fields, own["num_hidden_layers"])
    _refuse_unknown(fields)
    latent, rope = read_latent(fields, shape, ranks=(own["q_lora_rank"], 512), sizes=(192, 64, 256))
    index = _index(fields, layers, latent.position, shape["norm_eps"], own["index_n_heads"])
    limit = fields.number("swiglu_limit", 10.0)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        latent=replace(latent, index=index, norm_eps=shape["norm_eps"]),
        rope=rope,
        choosers=_choosers(fields, layers),
        sparse=sparse_layers(fields, layers, 1),
        mixture=read_mixture(fields, experts=256, chosen=8, inner=own["moe_intermediate_size"], scale=2.827),
        limit=limit if limit > 0 else None,
        streams=Streams(
            count=fields.count("hc_mult", 4, high=64),
            size=shape["hidden_size"],
            eps=fields.number("hc_eps", 1e-6),
            norm_eps=shape["norm_eps"],
        ),
        magnitude=fields.number("hc_magnitude", 2.0),
    )


_ONLY = {"gated_mla": True, "learnable_sink": True, "enable_ihc": True, "rope_interleave": True}


def _refuse_unknown(fields: Fields) -> None:
    """What the authors' code could do besides, and transformers does not look at."""
    fields.only(_ONLY)
    fields.choice("gating_type", ("elementwise",), "elementwise")
    if fields.raw.get("q_lora_rank", 1) is None:
        fields.refuse("q_lora_rank", "a rank, from which indexers read")


def _index(fields: Fields, layers: int, position: int, norm_eps: float, heads: int) -> IndexShape:
    kinds = fields.raw.get("layer_types")
    if isinstance(kinds, list):  # under the names that they had
        kinds = [_INDEXED if kind in ("sparse", "sparse_attention") else kind for kind in kinds]
        Fields({"layer_types": kinds}).words("layer_types", layers, (_INDEXED,))
    size = fields.count("index_head_dim", 128, low=position + 1, high=4096)
    return IndexShape(
        heads=fields.count("index_n_heads", heads, high=4096),
        size=size,
        chosen=fields.count("index_topk", 2048),
        still=size - position,
        norm_eps=norm_eps,
    )


_INDEXED = "indexed_attention"


def _choosers(fields: Fields, layers: int) -> tuple[int, ...]:
    """Without a list the first layer has an indexer, and every fourth from the second on."""
    kinds = fields.words("indexer_types", layers, ("full", "shared"))
    if kinds is None:
        own = ("full" if i == 0 or (i - 1) % 4 == 0 else "shared" for i in range(layers))
        kinds = fields.take("indexer_types", list(own))
    return choosers_of(fields, "indexer_types", kinds)


def _latent_of(config: Config, place: int) -> LatentShape:
    return config.latent if config.choosers[place] == place else replace(config.latent, own_index=False)


def layout(config: Config) -> list[LayerSpec]:
    return [_latent_of(config, place).memory for place in range(config.layers)]


class Attention(LatentAttention):
    """A sigmoid of a number for each that heads see is multiplied to it, and heads have sinks."""

    def __init__(self, shape: LatentShape, rope: Rope, chooser: int) -> None:
        super().__init__(shape, rope, rope, chooser)
        self.gate_proj = nn.Linear(shape.hidden, shape.heads * shape.value, bias=False)
        self.sinks = mx.zeros((shape.heads,))

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        return super().seen(x, step, cache) * sigmoid(linear(self.gate_proj, x, step))


class StreamsTrunk(Trunk):
    is_even = False

    def __init__(self, config: Config, layers: Sequence[Layer], norm: Normalize, scale: float | None) -> None:
        super().__init__(config, layers, norm, scale)
        self.hc_head = HyperHead(config.streams)
        self._count = config.streams.count

    def entering(self, step: Step) -> mx.array:
        return mx.tile(super().entering(step), (1, 1, self._count))

    def leaving(self, x: mx.array, step: Step) -> mx.array:
        return super().leaving(self.hc_head(x), step)


def _mlp(config: Config, *, sparse: bool) -> FeedForward:
    if not sparse:
        return gated_mlp(config)
    hidden, spec = config.hidden_size, config.mixture
    mixture = corrected_mixture(config)
    if config.limit is not None:
        mixture.switch_mlp = CustomGateExperts(hidden, spec.inner, spec.experts, clipped_before(config.limit))
    return mixture


def build(config: Config) -> CausalLM:
    rope, adding = Rope(config.rope), partial(AddingConnection, config.streams, config.magnitude)
    layers = [
        HyperBlock(
            Attention(_latent_of(config, place), rope, config.choosers[place]),
            _mlp(config, sparse=config.sparse[place]),
            rms_norms(config),
            adding,
        )
        for place in range(config.layers)
    ]
    return CausalLM(config, layers, rms_norms(config)(), trunk=StreamsTrunk)


_MODULES = (
    (".hc_pre.hc_", ".hc_"),
    (".learnable_sink_param", ".sinks"),
    (".linear_gate.", ".gate_proj."),
    (".hc_attn_layer.hc_", ".attn_hc."),
    (".hc_mlp_layer.hc_", ".ffn_hc."),
    (".hc_head_", ".hc_"),
)


def adapt(config: Config, weights: Weights) -> Weights:
    named = respelled(text_tensors(config, weights), _MODULES)
    return split_latent_heads(to_switch(named, config.mixture.experts), config.latent)


_WIDE = (".e_score_correction_bias", ".mlp.gate.weight", ".sinks", ".weights_proj.weight", *WIDE)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # Stored in float32.
    wide=_WIDE,
    checkpoint=always(Checkpoint(modules=_MODULES, heads=("mtp_layers.",))),
)
