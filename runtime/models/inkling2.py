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
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import Caches, by_layout
from runtime.models.checkpoint import Checkpoint
from runtime.models.experts import Weights, to_switch
from runtime.models.family import Family
from runtime.models.headed import Headed
from runtime.models.inkling import SENSITIVE, STACKS, WRAPPED, Memories, in_turn
from runtime.models.inkling2_attention import Attention, ShortConv
from runtime.models.inkling2_config import LAYERS, NO_LOOP, Config, layout, parse
from runtime.models.tensor_names import respelled, text_tower, without_spares
from runtime.nn import ops
from runtime.nn.conv import stored_filters
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm, rms
from runtime.nn.own_gate import OwnGateExperts, capped
from runtime.nn.route import CorrectedRouter
from runtime.nn.sparse import SharedMoE
from runtime.step import Step

_PLAIN_EPS = 1e-6


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
        x, before, loop = step.embedded(self.embed), list[mx.array](), self._loop or NO_LOOP
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


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        rows=(SENSITIVE,),
        default_layers=LAYERS.get(config.get("model_type", ""), 48),
        dealt=("w13_",),
        stacks=STACKS,
        modules=(*WRAPPED, (".weight_proj.weight", ".weight_proj"), *_ENDS, *_NAMES),
        heads=("mtp.",),
    )


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    keeps_dtype=keeps_dtype,
    checkpoint=_checkpoint,
)
