"""RWKV-6 and 7: every layer mixes a token with the one before it and folds all of them into a state.

Of RWKV-7 llama.cpp wants shares of the first layer's values in the first layer, too, which nothing reads: a
file has the layer's rates there once more.
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.changes import TURNED, Times
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Atom, Link, Shape, Side, row_count
from modelkit.source.gguf.architectures.parts import HIDDEN, INNER, LAYER_NORM, rule, rules
from modelkit.source.gguf.architectures.rules import Kept, Members, Move, Rule, flat
from modelkit.source.gguf.architectures.settings import Always, Same, Special, Written
from runtime.records import dataclass

_MIXED = "rwkvag"
"""Shares of the token before, in a file's order."""
_LOW, _HIGH = "lora.0.weight", "lora.2.weight"


def _by_head(shape: Shape, facts: Facts) -> Shape:
    return (shape[0] // max(facts.head_dim, 1), facts.head_dim)


_VECTOR = Kept(to_theirs=flat)


@dataclass(frozen=True, slots=True)
class _Shares:
    """One tensor of theirs, [count, 1, 1, hidden], is a vector for each kind, or one array in the first files
    of RWKV-7.
    """

    count: int = len(_MIXED)

    def link(self, members: Members) -> Link | None:
        their = members.theirs[0]
        count = self.count
        shape = members.shapes.get(their) or members.shapes[members.ours[0]]
        size = shape[-1]
        apart = len(members.ours) > 1
        whole, one = (count, 1, 1, size), (1, 1, size) if apart else (count, 1, 1, size)
        if their in members.shapes and (shape[0] != count or flat(shape, members.facts) != (count * size,)):
            return None
        held = (1,) * count if apart else (count,)
        ours = tuple(
            Side(name, members.shapes.get(name, one), (place,)) for place, name in enumerate(members.ours)
        )
        return Link((Side(their, whole, tuple(range(len(held)))),), ours, tuple(Atom(rows) for rows in held))


@dataclass(frozen=True, slots=True)
class _Twice:
    """In the first layer: the first of theirs is ours, and the second says the same."""

    def link(self, members: Members) -> Link | None:
        link = Kept().link(members)
        if members.layer or link is None:
            return None
        again = Side(members.theirs[1], link.theirs[0].shape)
        return Link((*link.theirs, again), link.ours, link.atoms)


def _bottleneck(part: str, move: Move, *more: str) -> tuple[Rule, ...]:
    """The pair of matrices of a kind, and a bias. more: kinds that have them, too, in a file."""
    return tuple(
        rule([f"time_mix_{one}{place}.weight" for one in (part, *more)], f"attn.{part}_lora.{name}", move)
        for place, name in enumerate(("lora.2.bias", _LOW, _HIGH))
    )


RWKV7 = Architecture(
    "rwkv7",
    (Kind("rwkv7", "RWKV7ForCausalLM"),),
    (
        Written("context_length", lambda _: 1 << 20),
        HIDDEN,
        INNER,
        Same(LAYER_NORM, ("norm_eps",), default=1e-5, needed=True),
        Same("wkv.head_size", ("head_dim",), default=64, needed=True),
        Same("attention.decay_lora_rank", ("decay_low_rank_dim",), default=64, needed=True),
        Same("attention.iclr_lora_rank", ("a_low_rank_dim",), default=64, needed=True),
        Same("attention.value_residual_mix_lora_rank", ("v_low_rank_dim",), default=16, needed=True),
        Same("attention.gate_lora_rank", ("gate_low_rank_dim",), default=128, needed=True),
        Written("attention.head_count", lambda _: 0),
        Written("token_shift_count", lambda _: None, lambda _: 2),
        Always("norm_first", True),
        Always("norm_bias", True),
    ),
    rules("""
        token_embd.* = model.embeddings.*
        token_embd_norm.* = model.layers.0.pre_norm.*
        output_norm.* = model.norm.*
        output.* = lm_head.*
    """),
    (
        *rules("""
            ^token_embd_norm.* = pre_norm.*
            attn_norm.* = attn_norm.*
            attn_norm_2.* = ffn_norm.*
            time_mix_receptance.weight = attn.r_proj.weight
            time_mix_key.weight = attn.k_proj.weight
            time_mix_value.weight = attn.v_proj.weight
            time_mix_output.weight = attn.o_proj.weight
            time_mix_ln.* = attn.g_norm.*
            channel_mix_key.weight = ffn.key.weight
            channel_mix_value.weight = ffn.value.weight
        """),
        rule("time_mix_k_k.weight", "attn.k_k", _VECTOR),
        rule("time_mix_k_a.weight", "attn.k_a", _VECTOR),
        rule("time_mix_r_k.weight", "attn.r_k", Kept(_by_head, flat)),
        rule("channel_mix_lerp_k.weight", "ffn.x_k", _VECTOR),
        rule("time_mix_lerp_fused.weight", [f"attn.x_{part}" for part in _MIXED], _Shares()),
        rule("time_mix_lerp_fused.weight", "attn.x_x", _Shares()),
        *_bottleneck("a", _Twice(), "v"),
        *(found for part in "wavg" for found in _bottleneck(part, Kept())),
    ),
)


@dataclass(frozen=True, slots=True)
class _Turned:
    """Matrices that a checkpoint has input first."""

    def link(self, members: Members) -> Link | None:
        their, our = members.theirs[0], members.ours[0]
        given = members.shapes.get(their) or members.shapes[our]
        turned = TURNED.before(given)
        shapes = (given, turned) if their in members.shapes else (turned, given)
        return Link((Side(their, shapes[0]),), (Side(our, shapes[1]),), (Atom(row_count(given)),), TURNED)


@dataclass(frozen=True, slots=True)
class _Halved:
    """A file has what closes a layer as often halved as its stream is."""

    def link(self, members: Members) -> Link | None:
        every = members.facts.count("rescale_every", default=6)
        times = members.layer // every if every > 0 else 0
        return Kept(change=Times(0.5**times) if times else None).link(members)


_SIXTH = "wkvrg"
"""Shares of the token before in RWKV-6, in a file's order."""


def _read_ranks(file: Reading) -> None:
    """Which follow from the width of the stream."""
    large = file.config["hidden_size"] == 4096
    for key, wanted in (
        ("time_mix_extra_dim", 64 if large else 32),
        ("time_decay_extra_dim", 128 if large else 64),
    ):
        if file.count(key, wanted) != wanted:
            file.unsupported(f"`{file.full(key)}` is not {wanted}, which this width has")


def _write_ranks(out: Writing) -> None:
    large = out.facts.hidden == 4096
    out.put("time_mix_extra_dim", 64 if large else 32)
    out.put("time_decay_extra_dim", 128 if large else 64)


def _read_halving(file: Reading) -> None:
    file.config["rescale_every"] = file.count("rescale_every_n_layers", 0)


def _write_halving(out: Writing) -> None:
    out.put("rescale_every_n_layers", out.facts.count("rescale_every", default=6))


def _write_inner(out: Writing) -> None:
    inner = out.facts.count("intermediate_size", default=int(out.facts.hidden * 3.5) // 32 * 32)
    out.put("feed_forward_length", inner)


RWKV6 = Architecture(
    "rwkv6",
    (Kind("rwkv6", "Rwkv6ForCausalLM"),),
    (
        Written("context_length", lambda _: 1 << 20),
        HIDDEN,
        Special(
            lambda file: file.config.update(intermediate_size=file.count("feed_forward_length")), _write_inner
        ),
        Same(LAYER_NORM, ("layer_norm_epsilon",), default=1e-5, needed=True),
        Same("wkv.head_size", ("head_size",), default=64, needed=True),
        Special(_read_halving, _write_halving),
        Special(_read_ranks, _write_ranks),
        Written("attention.head_count", lambda _: 0),
        Written("token_shift_count", lambda _: None, lambda _: 2),
        Always("head_size_divisor", 8),
    ),
    rules("""
        token_embd.* = rwkv.embeddings.*
        token_embd_norm.* = rwkv.blocks.0.pre_ln.*
        output_norm.* = rwkv.ln_out.*
        output.* = head.*
    """),
    (
        *rules("""
            ^token_embd_norm.* = pre_ln.*
            attn_norm.* = ln1.*
            attn_norm_2.* = ln2.*
            time_mix_receptance.weight = attention.receptance.weight
            time_mix_key.weight = attention.key.weight
            time_mix_value.weight = attention.value.weight
            time_mix_gate.weight = attention.gate.weight
            time_mix_ln.* = attention.ln_x.*
            time_mix_first.weight = attention.time_faaaa
            channel_mix_key.weight = feed_forward.key.weight
            channel_mix_receptance.weight = feed_forward.receptance.weight
        """),
        rule("time_mix_output.weight", "attention.output.weight", _Halved()),
        rule("channel_mix_value.weight", "feed_forward.value.weight", _Halved()),
        rule("time_mix_decay.weight", "attention.time_decay", _VECTOR),
        rule("time_mix_lerp_x.weight", "attention.time_maa_x", _VECTOR),
        rule("time_mix_lerp_fused.weight", [f"attention.time_maa_{part}" for part in _SIXTH], _Shares(5)),
        *(rule(f"channel_mix_lerp_{part}.weight", f"feed_forward.time_maa_{part}", _VECTOR) for part in "kr"),
        *(
            rule(f"time_mix_{theirs}.weight", f"attention.time_{ours}", _Turned())
            for theirs, ours in (
                ("w1", "maa_w1"),
                ("w2", "maa_w2"),
                ("decay_w1", "decay_w1"),
                ("decay_w2", "decay_w2"),
            )
        ),
    ),
    home="rwkv.blocks.{}.",
)
