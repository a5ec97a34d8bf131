"""Inkling 2, and Inkling 2 Mini, whose middle layers are passed several times.

As in Inkling, each query says how much it likes every distance, layers convolve what they make, and those
with a window have heads of their own. Otherwise: each sublayer reads a mix of what entered every block of
layers so far, by a learned query, and a block's answers add up by themselves; heads of queries and keys, and
what is liked, have a greatest length; each query says what probability it gives away (a sink); in layers
without a window filters of keys and values depend on the token; gates close what heads see; experts' parts
are bent.

Of a looped model the later passes start anew from what entered the first, and hear in each layer, by learned
queries, what the pass before came to. Each pass remembers its own keys and values: the layout lists the
memories of all layers (`models.inkling`), then those of the looped ones for each further pass.

Sources: transformers modeling_inkling2.py, modeling_inkling2_loop.py.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, ScanningCache, by_layout
from runtime.cpu.parts import of_tokens
from runtime.models.checkpoint import Checkpoint, always
from runtime.models.config import Fields
from runtime.models.decoder_config import DecoderConfig, key_heads, layer_count, read_shape
from runtime.models.experts import Weights, to_switch
from runtime.models.family import Family
from runtime.models.headed import Headed
from runtime.models.inkling import (
    SENSITIVE,
    STACKS,
    WRAPPED,
    Growing,
    Memories,
    hybrid_layout,
    in_turn,
    read_growing,
    read_hybrid,
    real_ids,
)
from runtime.models.inkling import ShortConv as Mixed
from runtime.models.tensor_names import respelled, text_tower, without_spares
from runtime.nn import ops
from runtime.nn.activation import sigmoid
from runtime.nn.attend import attend
from runtime.nn.causal_conv import last_inputs
from runtime.nn.conv import stored_filters
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm, rms
from runtime.nn.own_gate import OwnGateExperts, capped
from runtime.nn.relative import by_distance
from runtime.nn.route import CorrectedRouter
from runtime.nn.sparse import SharedMoE
from runtime.records import dataclass
from runtime.step import Step

_PLAIN_EPS = 1e-6


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


_NONE = Loop(0, 0, 1, 0)


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    near: tuple[int, int, int]
    """In layers with a window: heads of queries, of keys and values, and their size."""
    relative: int
    """Numbers by which a query's head says what it likes."""
    extents: tuple[int, ...]
    """Of each layer: how many distances it tells apart."""
    growing: Growing
    """In layers without a window."""
    longest: tuple[float, float]
    """Of heads of queries and keys, and of what they like: their greatest length."""
    taps: int
    block: int
    """Layers of one."""
    experts: int
    chosen: int
    """Per token."""
    gate_scale: float
    caps: tuple[float, float, float]
    """Of an expert's gate and of what is gated, and of logits."""
    loop: Loop | None

    def of_layer(self, place: int) -> "Config":
        """With that layer's own heads."""
        if self.windows[place] is None:
            return self
        heads, groups, size = self.near
        return replace(self, heads=heads, kv_heads=groups, head_dim=size)


_SMALL = {"hidden_size": 4608, "num_attention_heads": 48, "moe_intermediate_size": 2304}
_MINI = {"hidden_size": 2304, "num_attention_heads": 24, "moe_intermediate_size": 1152}
_OTHERS = {"inkling2_text": (48, 384, 128000), "inkling2_loop_text": (24, 128, 8192)}
"""Layers, experts, and from where on queries grow."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields({**raw, "tie_word_embeddings": False})
    kind = fields.choice("model_type", tuple(_OTHERS))
    loops, (many, experts, floor) = kind == "inkling2_loop_text", _OTHERS[kind]
    sizes = _MINI if loops else _SMALL
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
    shape["vocab_size"] = real_ids(fields, shape["vocab_size"], 200058)
    fields.choice("scoring_func", ("sigmoid",), "sigmoid")
    layers = layer_count(fields, many)
    windows = read_hybrid(fields, layers, 1024)
    extent, block = (
        fields.count("rel_extent", 1024, high=1 << 20),
        fields.count("n_layers_per_attn_res_block", 6),
    )
    heads = fields.count("swa_num_attention_heads", sizes["num_attention_heads"], high=4096)
    experts = fields.count("n_routed_experts", experts, high=1 << 16)
    return Config(
        **shape,
        windows=windows,
        ropes=(None,) * layers,
        near=(
            heads,
            key_heads(fields, heads, min(8, heads), name="swa_num_key_value_heads"),
            fields.count("swa_head_dim", 128, high=4096),
        ),
        relative=fields.count("d_rel", 16, high=4096),
        extents=tuple(extent if window is None else window for window in windows),
        growing=read_growing(fields, floor),
        longest=(
            fields.number("qk_l2_clip_threshold", 22.627416997969522, low=1e-6),
            fields.number("rel_l2_clip_threshold", 8.0, low=1e-6),
        ),
        taps=fields.count("conv_kernel_size", 4, low=2, high=64),
        block=block,
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 8, high=experts),
        gate_scale=fields.number("route_scale", 8.0),
        caps=(
            fields.number("mlp_gate_softcap", 4.0, low=1e-6),
            fields.number("mlp_up_softcap", 25.0, low=1e-6),
            fields.number("final_logit_softcapping", 30.0, low=1e-6),
        ),
        loop=_loop(fields, layers, block) if loops else None,
    )


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
    specs, loop = hybrid_layout(config), config.loop
    return specs if loop is None else specs + specs[4 * loop.start : 4 * loop.stop] * (loop.passes - 1)


class ShortConv(Mixed):
    """Both, scaled as if they were as many as there are taps, and one."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__(channels, taps)
        self._share = (taps + 1) ** -0.5

    def over(
        self, x: mx.array, before: mx.array, counts: mx.array | None, *_: mx.array
    ) -> tuple[mx.array, mx.array]:
        mixed, after = super().over(x, before, counts)
        return mixed * self._share, after


class DynamicConv(Module):
    """The same by filters that each token makes, one for each head of keys, beside those that are stored."""

    def __init__(self, hidden: int, heads: int, size: int, taps: int) -> None:
        super().__init__()
        self.static_weight = mx.zeros((taps, heads * size))
        self.weight_proj = nn.Linear(hidden, heads * taps, bias=False)
        self._heads, self._share = heads, (2 * taps + 1) ** -0.5

    def over(
        self, x: mx.array, before: mx.array, counts: mx.array | None, *filters: mx.array
    ) -> tuple[mx.array, mx.array]:
        """filters: one array [B, L, H * taps], what `weight_proj` makes of each token."""
        taps, width = self.static_weight.shape[0], x.shape[1]
        window = mx.concatenate([before.astype(x.dtype), x], axis=1)
        own = mx.unflatten(filters[0].astype(mx.float32), -1, (self._heads, taps))
        static = mx.unflatten(self.static_weight.astype(mx.float32), -1, (self._heads, -1))
        out = mx.unflatten(x.astype(mx.float32), -1, (self._heads, -1))
        for behind in range(taps):
            at = taps - 1 - behind
            part = mx.unflatten(window[:, at : at + width].astype(mx.float32), -1, (self._heads, -1))
            out = out + part * (static[behind] + own[..., behind : behind + 1])
        return (out.flatten(-2) * self._share).astype(x.dtype), last_inputs(window, taps - 1, counts)


def shortened(x: mx.array, longest: float) -> mx.array:
    """Vectors along the last axis, in float32, those that are longer made as long."""
    length = mx.sqrt(x.square().sum(axis=-1, keepdims=True))
    return x * mx.minimum(longest / (length + 1e-6), 1.0)


class Clip(Module):
    """Heads [B, L, H, K], times a stored scale, no longer than that."""

    def __init__(self, heads: int, size: int, longest: float) -> None:
        super().__init__()
        self.scale = mx.ones((heads, size))
        self._longest = longest

    def __call__(self, x: mx.array) -> mx.array:
        return shortened(x.astype(mx.float32) * self.scale.astype(mx.float32), self._longest)


class ClippedHeads(Module):
    """[B, L, D] -> heads [B, H, L, K] in float32, which grow with their place where that is said."""

    def __init__(self, hidden: int, heads: int, size: int, longest: float, growing: Growing | None) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, heads * size, bias=False)
        self.norm = Clip(heads, size, longest)
        self._heads, self._growing = heads, growing

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        heads = mx.unflatten(linear(self.linear, x, step), -1, (self._heads, -1))
        clipped = self.norm(heads).swapaxes(1, 2)
        times = None if self._growing is None else self._growing.of_step(step)
        return clipped if times is None else clipped * times


class Liked(ClippedHeads):
    def __init__(self, config: Config, extent: int, growing: Growing | None) -> None:
        super().__init__(config.hidden_size, config.heads, config.relative, config.longest[1], growing)
        self.proj = mx.zeros((config.relative, extent))

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        liked = super().__call__(x, step).astype(x.dtype)
        return ops.table.matmul(liked, self.proj.astype(x.dtype))


class Convolved(Module):
    """Of keys, or of values."""

    def __init__(self, config: Config, *, dynamic: bool) -> None:
        super().__init__()
        hidden, groups, size, taps = config.hidden_size, config.kv_heads, config.head_dim, config.taps
        self.linear = nn.Linear(hidden, groups * size, bias=False)
        self.sconv: DynamicConv | ShortConv = (
            DynamicConv(hidden, groups, size, taps) if dynamic else ShortConv(groups * size, taps)
        )


class Gated(Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.linear = nn.Linear(inner, hidden, bias=False)

    def __call__(self, seen: mx.array, x: mx.array, step: Step) -> mx.array:
        gate = sigmoid(linear(self.gate_proj, x, step).astype(mx.float32))
        return linear(self.linear, (seen.astype(mx.float32) * gate).astype(x.dtype), step)


class Attention(Module):
    def __init__(self, config: Config, extent: int, growing: Growing | None) -> None:
        """config: that of the layer. growing None: it has a window."""
        super().__init__()
        hidden, dynamic = config.hidden_size, growing is not None
        self.q_proj = ClippedHeads(hidden, config.heads, config.head_dim, config.longest[0], growing)
        self.k_proj = Convolved(config, dynamic=dynamic)
        self.v_proj = Convolved(config, dynamic=dynamic)
        self.o_proj = Gated(hidden, config.heads * config.head_dim)
        self.sink_proj = nn.Linear(hidden, config.heads, bias=False)
        self.relative_position_bias = Liked(config, extent, growing)
        self._heads, self._kv_heads, self._scale = config.heads, config.kv_heads, config.head_dim**-0.5
        self._longest, self._eps = config.longest[0], config.norm_eps

    def __call__(
        self, reads: Sequence[mx.array], step: Step, last: ScanningCache, cache: AttentionCache
    ) -> mx.array:
        """reads: what queries, keys and values are made of."""
        x, *others = reads
        keys, values = self._convolved(others, step, last)
        keys = shortened(keys.astype(mx.float32), self._longest).astype(x.dtype).swapaxes(1, 2)
        values = rms(values, self._eps).swapaxes(1, 2)
        queries = self.q_proj(x, step).astype(x.dtype)
        liked = self.relative_position_bias(x, step)
        # A sink is one more score. Less it, all others are what they are beside one of 0.
        sink = linear(self.sink_proj, x, step).swapaxes(1, 2)[..., None]

        def bias(places: mx.array, asking: range) -> mx.array:
            return by_distance(liked, step, places, asking) - of_tokens(sink, asking)

        none = mx.zeros((self._heads,), x.dtype)
        seen = attend(step, cache, queries, keys, values, scale=self._scale, sinks=none, bias=bias)
        return self.o_proj(seen, x, step)

    def _convolved(
        self, reads: Sequence[mx.array], step: Step, last: ScanningCache
    ) -> tuple[mx.array, mx.array]:
        """Keys and values by heads, [B, L, G, K]."""
        parts = self.k_proj, self.v_proj
        made = [linear(part.linear, x, step) for part, x in zip(parts, reads, strict=True)]
        for part, x in zip(parts, reads, strict=True):
            if isinstance(part.sconv, DynamicConv):
                made.append(linear(part.sconv.weight_proj, x, step))
        both = mx.unflatten(last.scan(step, self._mixed, *made), -1, (2 * self._kv_heads, -1))
        return both[:, :, : self._kv_heads], both[:, :, self._kv_heads :]

    def _mixed(
        self,
        states: dict[str, mx.array],
        keys: mx.array,
        values: mx.array,
        *filters: mx.array,
        counts: mx.array | None,
    ) -> tuple[mx.array, dict[str, mx.array]]:
        keys, last_keys = self.k_proj.sconv.over(keys, states["keys"], counts, *filters[:1])
        values, last_values = self.v_proj.sconv.over(values, states["values"], counts, *filters[1:])
        return mx.concatenate([keys, values], axis=-1), {"keys": last_keys, "values": last_values}


class MoE(SharedMoE):
    def __init__(self, config: Config) -> None:
        hidden = config.hidden_size
        router = CorrectedRouter(hidden, config.experts, config.chosen, scale=config.gate_scale)
        super().__init__(hidden, config.intermediate_size, config.experts, router, shared=0)
        gate = capped(*config.caps[:2])
        self.switch_mlp = OwnGateExperts(hidden, config.intermediate_size, config.experts, gate)


class Recall(Module):
    """What a sublayer reads: a mix of normed states, by one learned query or several."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.query = mx.zeros(shape)

    def __call__(self, states: Sequence[mx.array], queries: mx.array | None = None) -> list[mx.array]:
        """states: float32 [B, L, D] each, normed. For each query [D] a mix of them."""
        asked = (self.query if queries is None else queries).astype(mx.float32)
        asked = asked.reshape(-1, asked.shape[-1])
        stacked = mx.stack([*states], axis=2)
        scores = ops.table.matmul(asked, stacked, transposed=True)  # [B, L, queries, states]
        mixed = ops.table.matmul(ops.table.softmax(scores * asked.shape[-1] ** -0.5), stacked)
        return [mixed[:, :, query] for query in range(asked.shape[0])]


def plain(x: mx.array) -> mx.array:
    """A state as it is mixed: float32, normed."""
    return rms(x.astype(mx.float32), _PLAIN_EPS)


class MessageGate(Module):
    """How much of a layer's own state is forgotten, and how much of a message heard."""

    def __init__(self, hidden: int, rank: int, eps: float) -> None:
        super().__init__()
        self.down_proj = nn.Linear(2 * hidden, rank, bias=False)
        self.forget_gate_proj = nn.Linear(rank, hidden, bias=False)
        self.message_gate_proj = nn.Linear(rank, hidden, bias=False)
        self._eps = eps

    def __call__(self, x: mx.array, message: mx.array, step: Step, dtype: mx.Dtype) -> mx.array:
        both = mx.concatenate([rms(x, self._eps), rms(message, self._eps)], axis=-1)
        low = linear(self.down_proj, both.astype(dtype), step).astype(mx.float32)
        forgets = mx.tanh(linear(self.forget_gate_proj, low, step))
        return (1 - forgets) * x + mx.tanh(linear(self.message_gate_proj, low, step)) * message


class Block(Module):
    def __init__(self, config: Config, place: int) -> None:
        super().__init__()
        hidden, loop = config.hidden_size, config.loop
        self._whole = config.windows[place] is None
        growing = config.growing if self._whole else None
        if place:
            self.attention_input = Recall(3, hidden) if self._whole else Recall(hidden)
        self.mlp_input = Recall(hidden)
        self.self_attn = Attention(config.of_layer(place), config.extents[place], growing)
        self.mlp = MoE(config)

        def norm() -> RMSNorm:
            return RMSNorm(hidden, eps=config.norm_eps)

        if self._whole:
            self.q_input_layernorm, self.k_input_layernorm, self.v_input_layernorm = norm(), norm(), norm()
        else:
            self.input_layernorm = norm()
        self.post_attention_layernorm = norm()
        self.post_attention_convolution = ShortConv(hidden, config.taps)
        self.post_mlp_convolution = ShortConv(hidden, config.taps)
        if loop is not None and loop.start <= place < loop.stop:
            gates = [MessageGate(hidden, loop.rank, config.norm_eps) for _ in range(4)]
            self.q_message_gate, self.k_message_gate, self.v_message_gate, self.mlp_message_gate = gates
        self._first = place % config.block == 0

    def __call__(
        self,
        x: mx.array,
        step: Step,
        memories: Memories,
        before: list[mx.array],
        messages: Sequence[mx.array] = (),
    ) -> mx.array:
        """x: what this block of layers came to so far. before: what entered blocks, normed; to it comes what
        enters the one that begins here. messages: for queries, keys, values, and the feed-forward part.
        """
        dtype, entered = x.dtype, plain(x)
        last, cache, seen, fed = memories
        reads = self.attention_input([*before, entered]) if "attention_input" in self else [x]
        answer = self.self_attn(self._read(reads, step, messages, dtype), step, last, cache)
        answer = self.post_attention_convolution(answer, step, seen).astype(mx.float32)
        if self._first:
            before.append(entered)
            x = answer
        else:
            x = x.astype(mx.float32) + answer
        (read,) = self.mlp_input([*before, plain(x)])
        if messages:
            read = self.mlp_message_gate(read, messages[3], step, dtype)
        answer = self.mlp(self.post_attention_layernorm(read).astype(dtype), step)
        return (x + self.post_mlp_convolution(answer, step, fed)).astype(dtype)

    def _read(
        self, reads: Sequence[mx.array], step: Step, messages: Sequence[mx.array], dtype: mx.Dtype
    ) -> list[mx.array]:
        """What queries, keys and values are made of."""
        if len(reads) == 1 and not self._whole and not messages:
            return [self.input_layernorm(reads[0]).astype(dtype)] * 3
        each = [*reads] if len(reads) == 3 else [reads[0]] * 3
        if messages:
            gates = self.q_message_gate, self.k_message_gate, self.v_message_gate
            heard = zip(gates, each, messages[:3], strict=True)
            each = [gate(x, message, step, dtype) for gate, x, message in heard]
        norms = (
            (self.q_input_layernorm, self.k_input_layernorm, self.v_input_layernorm)
            if self._whole
            else (self.input_layernorm,) * 3
        )
        return [norm(x).astype(dtype) for norm, x in zip(norms, each, strict=True)]


class Trunk(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, loop = config.hidden_size, config.loop
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        self.embed_norm = RMSNorm(hidden, eps=config.norm_eps)
        self.layers = [Block(config, place) for place in range(config.layers)]
        self.final_input = Recall(hidden)
        self.norm = RMSNorm(hidden, eps=config.norm_eps)
        if loop is not None:
            self.message_input = Recall(loop.layers, 4, hidden)
        self._loop = loop

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        step.refuse_positions("no layer of this network goes by positions")
        flat, count = by_layout(caches), len(self.layers)
        memories: list[Any] = list(zip(*(flat[i::4] for i in range(4)), strict=True))
        x, before, loop = step.embedded(self.embed), list[mx.array](), self._loop or _NONE
        dtype, places = x.dtype, range(loop.start, loop.stop)
        x = self._passed(range(loop.start), x, step, memories[: loop.start], before)
        entering, known = x, [*before]
        x = self._passed(places, x, step, memories[loop.start : loop.stop], before)
        for turn in range(loop.passes - 1):
            # What entered the first block of the looped ones is what entered all passes.
            came = [*before[len(known) + 1 :], plain(x)]
            before = [*known]
            own = memories[count + turn * loop.layers :][: loop.layers]
            x = self._passed(places, entering, step, own, before, came)
        x = self._passed(range(loop.stop, count), x, step, memories[loop.stop : count], before)
        (read,) = self.final_input([*before, plain(x)])
        return self.norm(read).astype(dtype)

    def _passed(
        self,
        places: range,
        x: mx.array,
        step: Step,
        memories: Sequence[Memories],
        before: list[mx.array],
        came: Sequence[mx.array] = (),
    ) -> mx.array:
        """Through these layers. came: what the pass before came to, as it is mixed."""
        for place, memory in zip(places, memories, strict=True):
            messages = (
                self.message_input(came, self.message_input.query[place - places.start]) if came else ()
            )
            x = self.layers[place](x, step, memory, before, messages)
        return x

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return self.embed_norm(embed(self.embed_tokens, ids, step))


class Inkling2(Headed):
    def __init__(self, config: Config) -> None:
        head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        super().__init__(Trunk(config), head, cap=config.caps[2])


def build(config: Config) -> Inkling2:
    return Inkling2(config)


_NAMES = (
    ("model.unembed.", "lm_head."),
    ("model.embed.", "model.embed_tokens."),
    (".embed_tokens.embed_norm.", ".embed_norm."),
    (".attn_res.output_query", ".final_input.query"),
    (".controllers.attn.", ".q_message_gate."),
    *((f".controllers.{part}.", f".{part}_message_gate.") for part in ("k", "v", "mlp")),
    (".down_weight", ".down_proj.weight"),
    (".gain_weight", ".message_gate_proj.weight"),
    (".forget_weight", ".forget_gate_proj.weight"),
    (".attn.", ".self_attn."),
    (".self_attn.wq_du.", ".self_attn.q_proj.linear."),
    (".self_attn.wk_dv.", ".self_attn.k_proj.linear."),
    (".self_attn.wv_dv.", ".self_attn.v_proj.linear."),
    (".self_attn.k_sconv.", ".self_attn.k_proj.sconv."),
    (".self_attn.v_sconv.", ".self_attn.v_proj.sconv."),
    (".self_attn.rel_logits_proj.", ".self_attn.relative_position_bias."),
    (".self_attn.wr_du.", ".self_attn.relative_position_bias.linear."),
    (".self_attn.q_l2_clip.", ".self_attn.q_proj.norm."),
    (".self_attn.rel_l2_clip.", ".self_attn.relative_position_bias.norm."),
    (".self_attn.wo_ud.", ".self_attn.o_proj.linear."),
    (".self_attn.gate_attn.", ".self_attn.o_proj.gate_proj."),
    (".self_attn.attn_sink_proj.", ".self_attn.sink_proj."),
    (".attn_sconv.", ".post_attention_convolution."),
    (".mlp_sconv.", ".post_mlp_convolution."),
    ("convolution.weight", "convolution.conv1d.weight"),
    (".sconv.weight_proj.", ".sconv.of_token."),
    (".sconv.weight", ".sconv.conv1d.weight"),
    (".sconv.of_token.", ".sconv.weight_proj."),
    (".mlp_norm.", ".post_attention_layernorm."),
    (".attn_norm.", ".input_layernorm."),
    ("_input_norm.", "_input_layernorm."),
    (".mlp.gate.bias", ".mlp.gate.e_score_correction_bias"),
    (".experts.w2_weight", ".experts.down_proj"),
)
_ENDS = (".weight_proj", ".weight_proj.weight"), (".static_w", ".static_weight")
_QUERY = re.compile(r"model\.attn_res\.(attn|mlp)_queries\.(\d{1,6})", re.ASCII)
_IN_TURN = ((".experts.w13_weight", ".experts.{}"),)
_MESSAGES = "model.middle_cycle_cross_pass_queries", "model.middle_cycle_cross_pass_kv_queries"


def adapt(config: Config, weights: Weights) -> Weights:
    """Rows of table and head that stand for no id are left out."""
    plain_names = {
        next(
            (name.removesuffix(theirs) + ours for theirs, ours in _ENDS if name.endswith(theirs)), name
        ): array
        for name, array in without_spares(config, text_tower(weights)).items()
    }
    adapted: Weights = {}
    if config.loop is not None and all(name in plain_names for name in _MESSAGES):
        ends, middle = (mx.unflatten(plain_names.pop(name), 0, (config.loop.layers, 2)) for name in _MESSAGES)
        adapted["model.message_input.query"] = mx.concatenate([ends[:, :1], middle, ends[:, 1:]], axis=1)
    for name, array in respelled(plain_names, _NAMES, trunk="").items():
        if found := _QUERY.fullmatch(name):
            kind, place = ("attention", int(found[2]) + 1) if found[1] == "attn" else ("mlp", int(found[2]))
            name = f"model.layers.{place}.{kind}_input.query"
        if name.endswith("conv1d.weight"):
            array = stored_filters(array)
        if name.startswith(("lm_head.", "model.embed_tokens.")):
            array = array[: config.vocab_size]
        adapted |= in_turn(name, array, _IN_TURN)
    return to_switch(adapted, config.experts)


_WIDE = (
    *(".e_score_correction_bias", ".gate.weight", "conv1d.weight", ".query"),
    *(".forget_gate_proj.weight", ".message_gate_proj.weight"),
)


def keeps_dtype(name: str) -> bool:
    """Filters, learned queries, gates of messages, and all that experts are chosen by."""
    return name.endswith(_WIDE)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    keeps_dtype=keeps_dtype,
    checkpoint=always(
        Checkpoint(
            rows=(SENSITIVE,),
            default_layers=48,
            dealt=("w13_",),
            stacks=STACKS,
            modules=(*WRAPPED, (".weight_proj.weight", ".weight_proj"), *_ENDS, *_NAMES),
            heads=("mtp.",),
        )
    ),
)
