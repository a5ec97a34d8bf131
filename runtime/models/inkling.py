"""Inkling: no rotation; each query says how much it likes every distance, and four short convolutions in each
layer mix tokens with the few before: keys, values, and what both sublayers answer.

Layers with a window have other heads than those without. A layer has four memories; the layout lists the last
keys and values before their convolutions, those that attention reads, then the last answers of attention and
of the feed-forward part. Experts that always answer are scored with the others: the gates of all that a token
asks sum to one. Images and sound are not computed here.

Source: transformers modeling_inkling.py. Published files have names of their own, and gate and up projections
whose rows come in turn.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import AttentionCache, Caches, Rotate, ScanningCache, by_layout
from runtime.config.decoder import (
    DecoderConfig,
)
from runtime.models.family import CORRECTIONS, Family
from runtime.models.inkling_config import Config, Growing, layout, parse
from runtime.nn.activation import sigmoid
from runtime.nn.attention.attend import attend, split_heads
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.router import Choice, choose, corrected
from runtime.nn.layer import Layer
from runtime.nn.linear import Takes, added, linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.positions.relative_bias import by_distance
from runtime.nn.recurrent.conv import CausalConv, with_filters
from runtime.nn.residual.sublayer import projections
from runtime.parts.feed_forward import Routing
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import respelled, text_tensors
from runtime.tensors.quantizing import EIGHT_ELSE, Row
from runtime.trunks.decoder import CausalLM, Trunk, rms_norms

Memories = tuple[ScanningCache, AttentionCache, ScanningCache, ScanningCache]


class ShortConv(Module):
    """x and what a convolution over the last tokens makes of it, together."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.conv1d = CausalConv(channels, taps, bias=False)

    def over(self, x: mx.array, before: mx.array, counts: mx.array | None) -> tuple[mx.array, mx.array]:
        mixed, after = self.conv1d(x, before, counts)
        return x + mixed, after

    def __call__(self, x: mx.array, step: Step, last: ScanningCache) -> mx.array:
        return last.scan(step, self._scan, x)

    def _scan(
        self, states: dict[str, mx.array], x: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        mixed, after = self.over(x, states["conv"], counts)
        return mixed, {"conv": after}


class Profiles(Module):
    """[..., R] -> [..., E]: from the R numbers that say what a query likes to one for each of E distances."""

    def __init__(self, relative: int, extent: int) -> None:
        super().__init__()
        self.proj = mx.zeros((relative, extent))

    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.matmul(x, self.proj.astype(x.dtype))


class Attention(Module):
    memories: ClassVar[None] = None
    """All of its layer's (`runtime.ranks.convolved_attention`)."""

    def __init__(self, config: Config, extent: int, growing: Growing | None) -> None:
        """config: that of the layer."""
        super().__init__()
        hidden, inner = config.hidden_size, config.heads * config.head_dim
        shared = config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(hidden, inner, bias=False)
        self.k_proj = nn.Linear(hidden, shared, bias=False)
        self.v_proj = nn.Linear(hidden, shared, bias=False)
        self.r_proj = nn.Linear(hidden, config.heads * config.relative, bias=False)
        self.o_proj = nn.Linear(inner, hidden, bias=False)
        self.k_sconv = ShortConv(shared, config.taps)
        self.v_sconv = ShortConv(shared, config.taps)
        self.q_norm = RMSNorm(config.head_dim, eps=config.norm_eps)
        self.k_norm = RMSNorm(config.head_dim, eps=config.norm_eps)
        self.rel_logits_proj = Profiles(config.relative, extent)
        self._heads, self._kv_heads, self._scale = config.heads, config.kv_heads, 1 / config.head_dim
        self._growing = growing

    def __call__(self, x: mx.array, step: Step, last: ScanningCache, cache: AttentionCache) -> mx.array:
        queries, keys, values, liked = projections(
            (self.q_proj, self.k_proj, self.v_proj, self.r_proj), x, step
        )
        keys, values = mx.split(last.scan(step, self._mixed, keys, values), 2, axis=-1)
        queries = self.q_norm(split_heads(queries, self._heads))
        keys = self.k_norm(split_heads(keys, self._kv_heads))
        bias = self.rel_logits_proj(split_heads(liked, self._heads))
        times = None if self._growing is None else self._growing.of_step(step)
        if times is not None:
            queries, bias = (queries * times).astype(queries.dtype), (bias * times).astype(bias.dtype)
        values = split_heads(values, self._kv_heads)
        by = partial(by_distance, bias, step)
        seen = attend(step, cache, queries, keys, values, scale=self._scale, bias=by)
        return linear(self.o_proj, seen, step)

    @property
    def head_counts(self) -> tuple[int, int]:
        """See `runtime.nn.attention.self_attention.Attention`, and so for the next."""
        return self._heads, self._kv_heads

    def of_heads(self, heads: int, groups: int) -> dict[str, Any]:
        return {"_heads": heads, "_kv_heads": groups}

    def _mixed(
        self, states: dict[str, mx.array], keys: mx.array, values: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        keys, last_keys = self.k_sconv.over(keys, states["keys"], counts)
        values, last_values = self.v_sconv.over(values, states["values"], counts)
        return mx.concatenate([keys, values], axis=-1), {"keys": last_keys, "values": last_values}


class ScaledMLP(GatedMLP):
    """Its answer is multiplied by a stored number."""

    by_inner: ClassVar[bool] = True

    def __init__(self, config: Config) -> None:
        super().__init__(config.hidden_size, config.intermediate_size, activation=config.activation)
        self.global_scale = mx.ones((1,))

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return super().__call__(x, step) * self.global_scale.astype(x.dtype)


class Router(Module):
    """Scores of all experts in float32, those that always answer last. All gates of a token sum to one, then
    they are multiplied.
    """

    takes_pairs: ClassVar[Takes] = "matrix"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.weight = mx.zeros((config.experts + config.shared, config.hidden_size))
        self.e_score_correction_bias = mx.zeros((config.experts,))
        self.global_scale = mx.ones((1,))
        self._routing = Routing("sigmoid", config.chosen, normalize=False)
        self._experts, self._scale = config.experts, config.gate_scale

    def __call__(self, x: mx.array, step: Step) -> tuple[Choice, Choice]:
        """x [B, L, D] -> of the chosen experts, and of those that always answer."""
        x = x.astype(mx.float32)
        scores = ops.table.matmul(x, self.weight.astype(mx.float32), transposed=True)
        scores = added(self, x, scores, step)
        routing = corrected(self._routing, self.e_score_correction_bias)
        chosen, gates = choose(routing, scores[..., : self._experts])
        always = sigmoid(scores[..., self._experts :])
        total = gates.sum(axis=-1, keepdims=True) + always.sum(axis=-1, keepdims=True)
        times = self._scale * self.global_scale.astype(mx.float32) / total
        all_of_them = mx.broadcast_to(mx.arange(always.shape[-1], dtype=mx.int32), always.shape)
        return (chosen, gates * times), (all_of_them, always * times)


class MoE(Module):
    adds: ClassVar[tuple[str, ...]] = ("switch_mlp", "shared_experts")

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.inner
        self.gate = Router(config)
        self.switch_mlp = Experts(hidden, inner, config.experts, activation=config.activation)
        self.shared_experts = Experts(hidden, inner, config.shared, activation=config.activation)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        chosen, always = self.gate(x, step)
        return self.switch_mlp(x, chosen, step) + self.shared_experts(x, always, step)


class Block(Module):
    def __init__(self, config: Config, place: int) -> None:
        super().__init__()
        growing = config.growing if config.windows[place] is None else None
        self.self_attn = Attention(config.of_layer(place), config.extents[place], growing)
        self.mlp: MoE | ScaledMLP = MoE(config) if config.sparse[place] else ScaledMLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.attn_sconv = ShortConv(config.hidden_size, config.taps)
        self.mlp_sconv = ShortConv(config.hidden_size, config.taps)

    def __call__(self, x: mx.array, step: Step, memories: Memories) -> mx.array:
        last, cache, seen, fed = memories
        answer = self.self_attn(self.input_layernorm(x), step, last, cache)
        x = x + self.attn_sconv(answer, step, seen)
        return x + self.mlp_sconv(self.mlp(self.post_attention_layernorm(x), step), step, fed)


class NormedTrunk(Trunk):
    """Embeddings are normed; each layer has four memories."""

    def __init__(
        self, config: DecoderConfig, layers: Sequence[Layer], norm: Normalize, embed_scale: float | None
    ) -> None:
        super().__init__(config, layers, norm, embed_scale)
        self.embed_norm = rms_norms(config)()

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        memories = by_layout(caches)
        own: Any = list(zip(*(memories[i::4] for i in range(4)), strict=True))
        return super().__call__(step, own)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return self.embed_norm(super().embed(ids, step))


class Inkling(CausalLM):
    def __init__(self, config: Config) -> None:
        layers: Any = [Block(config, place) for place in range(config.layers)]
        scale = 1 / config.head_divisor
        super().__init__(config, layers, rms_norms(config)(), logit_scale=scale, trunk=NormedTrunk)

    @property
    def shifts(self) -> list[Rotate | None]:
        return []


def build(config: Config) -> Inkling:
    return Inkling(config)


STACKS = (
    (".experts.w13_weight", ".experts.gate_up_proj"),
    (".experts.w2_weight", ".experts.down_proj"),
    (".shared_w13_weight", ".gate_up_proj"),
    (".shared_w2_weight", ".down_proj"),
)
SENSITIVE = Row(lambda t, r: r.promotes and t.has(".wk_dv.", ".wv_dv."), EIGHT_ELSE, "sensitive matrix")
WRAPPED = (
    ("model.language_model.unembed.", "lm_head."),
    ("model.language_model.embed.", "model.language_model.embed_tokens."),
)
PUBLISHED = (
    ("model.unembed.", "lm_head."),
    ("model.embed.", "model.embed_tokens."),
    (".embed_tokens.embed_norm.", ".embed_norm."),
    (".attn.wq_du.", ".self_attn.q_proj."),
    (".attn.wk_dv.", ".self_attn.k_proj."),
    (".attn.wv_dv.", ".self_attn.v_proj."),
    (".attn.wr_du.", ".self_attn.r_proj."),
    (".attn.wo_ud.", ".self_attn.o_proj."),
    (".attn.", ".self_attn."),
    ("_sconv.weight", "_sconv.conv1d.weight"),
    (".mlp_norm.", ".post_attention_layernorm."),
    (".attn_norm.", ".input_layernorm."),
    (".mlp.gate.bias", ".mlp.gate.e_score_correction_bias"),
    (".mlp.w2_md.", ".mlp.down_proj."),
    (".shared_w2_weight", ".down_proj"),
    (".experts.w2_weight", ".experts.down_proj"),
)
_IN_TURN = (".mlp.w13_dn.", ".mlp.{}."), (".shared_w13_weight", ".{}"), (".experts.w13_weight", ".experts.{}")
"""What holds rows of two matrices in turn."""


def adapt(config: Config, weights: Weights) -> Weights:
    """Rows of table and head that stand for no id are left out."""
    adapted: Weights = {}
    for name, array in with_filters(respelled(text_tensors(config, weights), PUBLISHED)).items():
        if name.startswith(("lm_head.", "model.embed_tokens.")):
            array = array[: config.vocab_size]
        adapted |= in_turn(name, array, _IN_TURN)
    return to_switch(with_leaves(adapted), config.experts)


def in_turn(name: str, array: mx.array, pairs: Iterable[tuple[str, str]]) -> Weights:
    """A tensor by its own name; of one that holds rows of gate and up in turn, both."""
    for theirs, ours in pairs:
        if theirs in name:
            parts, axis = ("gate_proj", "up_proj"), 1 if "experts" in name or "shared" in name else 0
            rows = (slice(None),) * axis
            return {
                name.replace(theirs, ours.format(part)): array[(*rows, slice(first, None, 2))]
                for first, part in enumerate(parts)
            }
    return {name: array}


def with_leaves(weights: Weights) -> Weights:
    """Stacks of experts that always answer, which transformers holds without `.weight`, gain it."""
    return {
        f"{name}.weight" if ".shared_experts." in name and name.endswith("_proj") else name: array
        for name, array in weights.items()
    }


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # Filters, too.
    wide=(*CORRECTIONS, "conv1d.weight", ".gate.global_scale"),
    checkpoint=always(
        Checkpoint(
            rows=(SENSITIVE,),
            default_layers=66,
            dealt=("w13_",),
            stacks=STACKS,
            paired=((".w13_dn.", (".gate_proj.", ".up_proj.")),),
            modules=(*WRAPPED, *PUBLISHED),
            norms_rows=True,
            heads=("mtp.",),
        )
    ),
)
