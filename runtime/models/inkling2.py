"""Inkling 2, and Inkling 2 Mini, whose middle layers are passed several times.

As in Inkling, each query says how much it likes every distance, layers convolve what they make, and those
with a window have heads of their own. Otherwise: each sublayer reads a mix of what entered every block of
layers so far, by a learned query, and a block's answers add up by themselves; heads of queries and keys, and
what is liked, have a greatest length; each query says what probability it gives away (a sink); in layers
without a window filters of keys and values depend on the token; gates close what heads see; experts' parts
are bent.

What entered the blocks lies side by side in the stream, then what this one came to, then room for those that
are to come.

Of a looped model the later passes start anew from what entered the first, and hear in each layer, by learned
queries, what the pass before came to, which lies behind. Each pass remembers its own keys and values: a layer
has four memories (`models.inkling`) for each.

Sources: transformers modeling_inkling2.py, modeling_inkling2_loop.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import Caches, by_layout
from runtime.models.family import Family
from runtime.models.inkling import SENSITIVE, STACKS, WRAPPED, in_turn
from runtime.models.inkling2_attention import Attention, ShortConv
from runtime.models.inkling2_config import LAYERS, Config, layout, parse
from runtime.nn.feed_forward.custom_gate import CustomGateExperts, capped
from runtime.nn.feed_forward.moe import SharedMoE
from runtime.nn.feed_forward.router import CorrectedRouter
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm, rms
from runtime.nn.operations import ops
from runtime.nn.recurrent.conv import with_filters
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import respelled, text_tensors
from runtime.trunks.headed import Headed

_PLAIN_EPS = 1e-6


class MoE(SharedMoE):
    def __init__(self, config: Config) -> None:
        hidden = config.hidden_size
        router = CorrectedRouter(hidden, config.experts, config.chosen, scale=config.gate_scale)
        super().__init__(hidden, config.intermediate_size, config.experts, router, shared=0)
        gate = capped(*config.caps[:2])
        self.switch_mlp = CustomGateExperts(hidden, config.intermediate_size, config.experts, gate)


class Recall(Module):
    """What a sublayer reads: a mix of normed states, by one learned query or several."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.query = mx.zeros(shape)

    def __call__(self, states: mx.array) -> mx.array:
        """float32 [B, L, S, D], S normed states -> for each of Q queries [D] a mix of them, [B, L, Q, D]."""
        asked = self.query.astype(mx.float32).reshape(-1, self.query.shape[-1])
        scores = ops.table.matmul(asked, states, transposed=True)  # [B, L, Q, S]
        return ops.table.matmul(ops.table.softmax(scores * asked.shape[-1] ** -0.5), states)


def plain(x: mx.array) -> mx.array:
    """States as they are mixed: float32, normed."""
    return rms(x.astype(mx.float32), _PLAIN_EPS)


def _each(mixed: mx.array) -> list[mx.array]:
    return [mixed[:, :, query] for query in range(mixed.shape[2])]


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
        self._turns, self._states = config.turns(place), config.blocks + 1
        self._before, self._starts = -(-place // config.block), place % config.block == 0
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
        if loop is not None and place in config.looped:
            gates = [MessageGate(hidden, loop.rank, config.norm_eps) for _ in range(4)]
            self.q_message_gate, self.k_message_gate, self.v_message_gate, self.mlp_message_gate = gates
            self.message_input = Recall(4, hidden)

    def __call__(self, x: mx.array, step: Step, memories: Sequence[Any], turn: int) -> mx.array:
        """x [B, L, S D]: the stream. turn: which of the passes it is."""
        if turn not in self._turns:
            return x
        dtype, own = x.dtype, 4 * (turn - self._turns.start)
        last, cache, seen, fed = memories[own : own + 4]
        states = mx.unflatten(x, -1, (-1, self.post_attention_layernorm.weight.size))
        messages: Sequence[mx.array] = ()
        if turn and len(self._turns) > 1:
            messages = _each(self.message_input(plain(states[:, :, self._states :])))
        count = self._before
        entered, known = states[:, :, count], plain(states[:, :, : count + 1])
        reads = _each(self.attention_input(known)) if "attention_input" in self else [entered]
        answer = self.self_attn(self._read(reads, step, messages, dtype), step, last, cache)
        answer = self.post_attention_convolution(answer, step, seen).astype(mx.float32)
        if self._starts:
            total, count = answer, count + 1
        else:
            total = entered.astype(mx.float32) + answer
        known = mx.concatenate([known[:, :, :count], plain(total)[:, :, None]], axis=2)
        (read,) = _each(self.mlp_input(known))
        if messages:
            read = self.mlp_message_gate(read, messages[3], step, dtype)
        answer = self.mlp(self.post_attention_layernorm(read).astype(dtype), step)
        total = (total + self.post_mlp_convolution(answer, step, fed)).astype(dtype)
        parts = [states[:, :, :count], total[:, :, None], states[:, :, count + 1 :]]
        return mx.concatenate(parts, axis=2).flatten(2)

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
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        self.embed_norm = RMSNorm(hidden, eps=config.norm_eps)
        self.layers = [Block(config, place) for place in range(config.layers)]
        self.final_input = Recall(hidden)
        self.norm = RMSNorm(hidden, eps=config.norm_eps)
        self._passes, self._states, self._heard = config.passes, config.blocks + 1, config.heard
        self._first = config.looped.start // config.block

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        step.refuse_positions("no layer of this network goes by positions")
        flat, own = by_layout(caches), 4 * self._passes
        x = step.embedded(self.embed)
        hidden = x.shape[-1]
        x = mx.pad(x, [(0, 0), (0, 0), (0, (self._states + self._heard - 1) * hidden)])
        for turn in range(self._passes):
            if turn:
                x = self._next_input(x, hidden)
            for place, layer in enumerate(self.layers):
                x = layer(x, step, flat[place * own : (place + 1) * own], turn)
        states = mx.unflatten(x, -1, (-1, hidden))
        return self.norm(self.final_input(plain(states[:, :, : self._states]))[:, :, 0]).astype(x.dtype)

    def _next_input(self, x: mx.array, hidden: int) -> mx.array:
        """What entered the looped layers is what enters all passes: it lies there yet. Behind goes what
        entered their other blocks, and what the last one came to.
        """
        first = (self._first + 1) * hidden
        return mx.concatenate(
            [x[..., : self._states * hidden], x[..., first : first + self._heard * hidden]], axis=-1
        )

    def goes_round(self, given: Sequence[Any]) -> bool:
        """See `runtime.ranks.stream`."""
        return given[2] + 1 < self._passes

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
_MESSAGES = "model.message_input.query"
_PUBLISHED = "model.middle_cycle_cross_pass_queries", "model.middle_cycle_cross_pass_kv_queries"


def adapt(config: Config, weights: Weights) -> Weights:
    """Rows of table and head that stand for no id are left out."""
    plain_names = {
        next(
            (name.removesuffix(theirs) + ours for theirs, ours in _ENDS if name.endswith(theirs)), name
        ): array
        for name, array in text_tensors(config, weights).items()
    }
    adapted: Weights = {}
    for place, query in enumerate(_messages(config, plain_names), start=config.looped.start):
        adapted[f"model.layers.{place}.message_input.query"] = query
    for name, array in with_filters(respelled(plain_names, _NAMES)).items():
        if found := _QUERY.fullmatch(name):
            kind, place = ("attention", int(found[2]) + 1) if found[1] == "attn" else ("mlp", int(found[2]))
            name = f"model.layers.{place}.{kind}_input.query"
        if name.startswith(("lm_head.", "model.embed_tokens.")):
            array = array[: config.vocab_size]
        adapted |= in_turn(name, array, _IN_TURN)
    return to_switch(adapted, config.experts)


def _messages(config: Config, weights: Weights) -> Iterator[mx.array]:
    """The queries of each looped layer, which one tensor has or two, taken out of the others."""
    if config.loop is not None and all(name in weights for name in _PUBLISHED):
        ends, middle = (mx.unflatten(weights.pop(name), 0, (-1, 2)) for name in _PUBLISHED)
        yield from mx.concatenate([ends[:, :1], middle, ends[:, 1:]], axis=1)
    elif config.loop is not None and _MESSAGES in weights:
        yield from weights.pop(_MESSAGES)


_WIDE = (
    *(".e_score_correction_bias", ".gate.weight", "conv1d.weight", ".query"),
    *(".forget_gate_proj.weight", ".message_gate_proj.weight"),
)


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        rows=(SENSITIVE,),
        default_layers=LAYERS.get(config.get("model_type", ""), 48),
        dealt=("w13_",),
        stacks=STACKS,
        modules=(*WRAPPED, (".weight_proj.weight", ".weight_proj"), *_ENDS, *_NAMES),
        norms_rows=True,
        heads=("mtp.",),
    )


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # Filters, learned queries, gates of messages, and all that experts are chosen by.
    wide=_WIDE,
    checkpoint=_checkpoint,
)
