"""RWKV-7: every layer mixes a token with the one before it and folds all of them into a state.

llama.cpp wants shares of the first layer's values in the first layer, too, which nothing reads: a file has
the layer's rates there once more.
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Atom, Link, Shape, Side
from modelkit.source.gguf.architectures.parts import HIDDEN, INNER, LAYER_NORM, rule, rules
from modelkit.source.gguf.architectures.rules import Kept, Members, Move, Rule
from modelkit.source.gguf.architectures.settings import Always, Same, Written
from runtime.records import dataclass

_MIXED = "rwkvag"
"""Shares of the token before, in a file's order."""
_LOW, _HIGH = "lora.0.weight", "lora.2.weight"


def _flat(shape: Shape, _: Facts) -> Shape:
    size = 1
    for length in shape:
        size *= length
    return (size,)


def _by_head(shape: Shape, facts: Facts) -> Shape:
    return (shape[0] // max(facts.head_dim, 1), facts.head_dim)


_VECTOR = Kept(to_theirs=_flat)


@dataclass(frozen=True, slots=True)
class _Shares:
    """One tensor of theirs, [6, 1, 1, hidden], is a vector for each kind, or one array in the first files."""

    def link(self, members: Members) -> Link | None:
        their = members.theirs[0]
        count = len(_MIXED)
        shape = members.shapes.get(their) or members.shapes[members.ours[0]]
        size = shape[-1]
        apart = len(members.ours) > 1
        whole, one = (count, 1, 1, size), (1, 1, size) if apart else (count, 1, 1, size)
        if their in members.shapes and (shape[0] != count or _flat(shape, members.facts) != (count * size,)):
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
        rule("time_mix_r_k.weight", "attn.r_k", Kept(_by_head, _flat)),
        rule("channel_mix_lerp_k.weight", "ffn.x_k", _VECTOR),
        rule("time_mix_lerp_fused.weight", [f"attn.x_{part}" for part in _MIXED], _Shares()),
        rule("time_mix_lerp_fused.weight", "attn.x_x", _Shares()),
        *_bottleneck("a", _Twice(), "v"),
        *(found for part in "wavg" for found in _bottleneck(part, Kept())),
    ),
)
