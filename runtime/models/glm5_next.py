"""GLM-5.3 (GLM-5 next; the text model): Kimi's delta nets and latent attention without positions on several
residual streams.

Attention looks at blocks of the past that an indexer chooses. Streams are mixed anew around every sublayer
(`hyper`), and what leaves the last layer is their mean. Gates of feed-forward blocks are clipped. Files hold
a draft head behind the last layer, which is left out.

Source: transformers modeling_glm5_next.py.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import mlx.core as mx

from runtime.cache.layout import Full, LayerSpec
from runtime.cache.protocol import AttentionCache, StepCache
from runtime.config.decoder import layer_count, read_shape, sparse_layers
from runtime.config.fields import Fields
from runtime.config.indexer import indexer_kinds
from runtime.models import kimi_linear
from runtime.models.family import CORRECTIONS, RATES, Family
from runtime.nn.attention.attend import merge_heads
from runtime.nn.attention.block_indexer import BlockShape, PoolIndexer
from runtime.nn.attention.mla import LatentAttention, LatentShape
from runtime.nn.feed_forward.custom_gate import CustomGateExperts, CustomGateMLP, clipped_before
from runtime.nn.layer import FeedForward, Layer, Mixer
from runtime.nn.linear import linear
from runtime.nn.norm import Normalize
from runtime.nn.recurrent.kimi_delta import KimiDelta, KimiDeltaSpec
from runtime.nn.residual.hyper_connections import WIDE, HyperBlock, MixingConnection, Streams
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights
from runtime.tensors.joined_rows import alike
from runtime.tensors.names import respelled, text_tower
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import CausalLM, Trunk, rms_norms
from runtime.trunks.mixture import MixtureConfig, corrected_mixture, read_mixture


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    delta: KimiDeltaSpec
    latent: LatentShape
    index: BlockShape
    limit: float
    """Of gates and what passes them."""
    streams: Streams
    rounds: int
    """Of how streams are mixed (`runtime.nn.residual.hyper_connections`)."""
    recurrent: tuple[bool, ...]
    """Of each layer: it is a delta net; else latent attention."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("glm5_next", "glm5_next_text"))
    layers = layer_count(fields, 45)
    latent = _latent(fields)
    shape = read_shape(
        Fields({**fields.raw, "head_dim": latent.content}),  # files have that of the rotated part, 0
        eps=1e-5,
        vocab_size=154880,
        hidden_size=4096,
        intermediate_size=12288,
        num_attention_heads=64,
        num_key_value_heads=64,
        max_position_embeddings=1048576,
    )
    if shape["kv_heads"] != shape["heads"]:
        fields.refuse("num_key_value_heads", f"num_attention_heads, {shape['heads']}")
    fields.choice("hidden_act", ("silu",), "silu")
    recurrent = _recurrent(fields, layers)
    _refuse_shared(fields, recurrent)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(None,) * layers,
        delta=_delta(fields, shape["norm_eps"]),
        latent=latent,
        index=_index(fields),
        mixture=read_mixture(fields, experts=288, chosen=8, inner=2048, scale=2.5),
        limit=fields.number("swiglu_limit", 10.0, low=1e-6),
        streams=Streams(
            fields.count("hc_mult", 4, high=64),
            shape["hidden_size"],
            eps=fields.number("hc_eps", 1e-6, low=0.0),
            norm_eps=shape["norm_eps"],
        ),
        rounds=fields.count("hc_sinkhorn_iters", 20, high=1000),
        recurrent=recurrent,
        sparse=sparse_layers(fields, layers, 3),
    )


def _latent(fields: Fields) -> LatentShape:
    fields.count("qk_rope_head_dim", 0, low=0, high=0)
    if fields.raw.get("q_lora_rank", 1536) is None:
        fields.refuse("q_lora_rank", "a rank, from which the indexer reads")
    content = fields.count("qk_nope_head_dim", 256, high=4096)
    return LatentShape(
        hidden=fields.count("hidden_size", 4096, high=1 << 20),
        heads=fields.count("num_attention_heads", 64, high=4096),
        query_rank=fields.count("q_lora_rank", 1536, high=1 << 16),
        rank=fields.count("kv_lora_rank", 512, high=1 << 16),
        content=content,
        position=0,
        value=fields.count("v_head_dim", 256, high=4096),
        scale=content**-0.5,
        bias=fields.flag("attention_bias"),
        norm_eps=fields.number("rms_norm_eps", 1e-5, low=1e-30),
    )


def _delta(fields: Fields, eps: float) -> KimiDeltaSpec:
    """Published files have a block for it, transformers' own fields."""
    own = fields.block("linear_attn_config")
    taps = fields.count("linear_conv_kernel_dim", 4, low=2, high=64)
    lowest = fields.raw.get("linear_lower_bound", -5.0)
    lowest = own.raw.get("gate_lower_bound", lowest)
    if lowest is None and own.raw and own.flag("safe_gate", True):
        lowest = -5.0
    return KimiDeltaSpec(
        heads=own.count("num_heads", fields.count("linear_num_heads", 64, high=4096), high=4096),
        size=own.count("head_dim", fields.count("linear_head_dim", 128, high=4096), high=4096),
        taps=own.count("short_conv_kernel_size", taps, low=2, high=64),
        eps=eps,
        lowest=None
        if lowest is None
        else Fields({"linear_lower_bound": lowest}).number("linear_lower_bound", high=-1e-6),
    )


def _index(fields: Fields) -> BlockShape:
    fields.only({"index_kpool_always_select_tail": True})
    block, budget = fields.count("index_kpool", 16), fields.count("index_topk", 2048)
    if budget % block:
        fields.refuse("index_topk", f"a multiple of index_kpool, {block}")
    return BlockShape(
        heads=fields.count("index_n_heads", 32, high=4096),
        size=fields.count("index_head_dim", 128, high=4096),
        block=block,
        best=budget // block,
    )


def _recurrent(fields: Fields, layers: int) -> tuple[bool, ...]:
    words = "linear_attention", "indexed_attention", "full_attention"
    kinds = fields.words("layer_types", layers, words)
    if kinds is not None:
        return tuple(kind == words[0] for kind in kinds)
    return fields.settle("layer_types", words[:2], (i % 4 != 3 for i in range(layers)))


def _refuse_shared(fields: Fields, recurrent: tuple[bool, ...]) -> None:
    """Blocks that another layer chose: transformers hands them to the next layer alone, and published files
    have none.
    """
    name, kinds = indexer_kinds(fields, len(recurrent))
    if any(kind == "shared" and not folds for kind, folds in zip(kinds, recurrent, strict=True)):
        fields.refuse(name, "an indexer of its own in each layer that attends")


def layout(config: Config) -> list[LayerSpec]:
    full = Full(1, config.latent.rank + 2 * config.index.size, value_dim=0)
    return [config.delta.memory if folds else full for folds in config.recurrent]


class Attention(LatentAttention):
    """Over what an indexer chooses, whose memory lies behind the layer's own."""

    def __init__(self, config: Config) -> None:
        super().__init__(config.latent, None)
        assert config.latent.query_rank is not None
        self.indexer = PoolIndexer(config.index, config.hidden_size, config.latent.query_rank)

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        low = self.q_a_layernorm(linear(self.q_a_proj, x, step))
        content, position = mx.split(self.queries(low, step), [self._shape.content], axis=-1)
        key = self._key(x, step)
        new = mx.concatenate([self._remembered(key), self.indexer.remembered(x, step)], axis=-1)
        seen, _, mask = cache.append(step, new, None)
        seen, index = mx.split(seen, [key.shape[-1]], axis=-1)
        mask = self.indexer.narrowed(x, low, index, step, mask)
        return merge_heads(self._attend(content, position, seen, mask, step))


def _block(config: Config, *, folds: bool, sparse: bool) -> HyperBlock[StepCache]:
    attention: Mixer = KimiDelta(config.hidden_size, config.delta) if folds else Attention(config)
    mixing = partial(MixingConnection, config.streams, config.rounds)
    return HyperBlock(attention, _feed_forward(config, sparse=sparse), rms_norms(config), mixing)


def _feed_forward(config: Config, *, sparse: bool) -> FeedForward:
    hidden, spec, gate = config.hidden_size, config.mixture, clipped_before(config.limit)
    if not sparse:
        return CustomGateMLP(hidden, config.intermediate_size, gate)
    mixture = corrected_mixture(config)
    mixture.switch_mlp = CustomGateExperts(hidden, spec.inner, spec.experts, gate)
    if spec.shared:
        mixture.shared_experts = CustomGateMLP(hidden, spec.shared, gate)
    return mixture


class StreamsTrunk(Trunk):
    """What enters is copied to every stream."""

    is_even = False

    def __init__(
        self, config: Config, layers: Sequence[Layer], norm: Normalize, embed_scale: float | None
    ) -> None:
        super().__init__(config, layers, norm, embed_scale)
        self._streams = config.streams.count

    def entering(self, step: Step) -> mx.array:
        x = super().entering(step)
        return mx.tile(x, (1, 1, self._streams))

    def leaving(self, x: mx.array, step: Step) -> mx.array:
        return self.norm(mx.unflatten(x, -1, (self._streams, -1)).mean(axis=-2))


def build(config: Config) -> CausalLM:
    layers = [
        _block(config, folds=folds, sparse=sparse)
        for folds, sparse in zip(config.recurrent, config.sparse, strict=True)
    ]
    return CausalLM(config, layers, rms_norms(config)(), trunk=StreamsTrunk)


_RENAMED = tuple(
    (f".hc_{theirs}_{leaf}", f".{theirs}_hc.{leaf}")
    for theirs in ("attn", "ffn")
    for leaf in ("fn", "base", "scale")
)


def adapt(config: Config, weights: Weights) -> Weights:
    """As Kimi Linear's, with the streams' own numbers."""
    return kimi_linear.adapt(config, respelled(text_tower(weights), _RENAMED))


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # Scores and what mixes streams differ by less than a 16-bit float can tell, too.
    wide=(*RATES, *CORRECTIONS, ".mlp.gate.weight", *WIDE),
    checkpoint=always(
        Checkpoint(
            rows=(alike(kimi_linear.MATRICES),),
            joined=(kimi_linear.MATRICES,),
            modules=tuple(
                (f".self_attn.{one}.", f".self_attn.forget_gate.{one}.") for one in ("f_a_proj", "f_b_proj")
            ),
            towers=USUAL,
            heads_behind=True,
            default_layers=45,
        )
    ),
)
