"""Kimi's delta nets, as files of several architectures have them.

In GGUF each filter is [1, channels, 1, taps]; the three of a layer are one in the network.
"""

from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Atom, Link, Shape, Side, row_count
from modelkit.source.gguf.architectures.parts import rule, rules
from modelkit.source.gguf.architectures.rules import Kept, Members
from runtime.records import dataclass


def _filters_to_ours(shape: Shape, _: Facts) -> Shape:
    """What is none stays as it is, and is refused by the network that it does not fit."""
    return (shape[-3], 1, shape[-1]) if len(shape) >= 3 else shape


def _filters_to_theirs(shape: Shape, _: Facts) -> Shape:
    """From [channels, 1, taps], [channels, taps, 1] or [channels, taps]."""
    return 1, shape[0], 1, row_count((*shape[1:], 1))


@dataclass(frozen=True, slots=True)
class _JoinedFilters:
    """The filters of queries, keys and values in one, as the network and some checkpoints have them."""

    def link(self, members: Members) -> Link | None:
        given = members.shapes.get(members.ours[0])
        if given is None or given[0] % len(members.theirs):
            return None
        rows, taps = given[0] // len(members.theirs), row_count((*given[1:], 1))
        theirs = tuple(Side(name, (1, rows, 1, taps), (i,)) for i, name in enumerate(members.theirs))
        every = tuple(range(len(theirs)))
        return Link(theirs, (Side(members.ours[0], given, every),), tuple(Atom(rows) for _ in every))


_FILTERS = Kept(_filters_to_ours, _filters_to_theirs)

DELTA = (
    *rules("""
        attn_k.weight = self_attn.k_proj.weight
        attn_v.weight = self_attn.v_proj.weight
        ssm_beta.weight = self_attn.b_proj.weight
        ssm_dt.bias = self_attn.dt_bias
        ssm_norm.weight = self_attn.o_norm.weight
    """),
    *(rule(f"ssm_conv1d_{part}.weight", f"self_attn.{part}_conv1d.weight", _FILTERS) for part in "qkv"),
    rule([f"ssm_conv1d_{part}.weight" for part in "qkv"], "self_attn.conv1d.weight", _JoinedFilters()),
)
"""Of a delta net, but for its decays and gates."""
LOW_RANK = rules("""
    ssm_f_a.weight = self_attn.f_a_proj.weight
    ssm_f_b.weight = self_attn.f_b_proj.weight
    ssm_g_a.weight = self_attn.g_a_proj.weight
    ssm_g_b.weight = self_attn.g_b_proj.weight
""")
"""Its decays and gates, each of two matrices."""
