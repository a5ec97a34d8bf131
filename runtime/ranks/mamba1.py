"""How the ranks that share a stage split state spaces whose step sizes are made of all channels (Mamba-1,
PLaMo 2): what these channels make of them is summed, and is on every rank.
"""

from dataclasses import replace
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.nn.recurrent.mamba1 import Mamba1
from runtime.ranks.pieces import Piece, Shard, group_of, scaled
from runtime.ranks.recurrences import own_states
from runtime.ranks.splits import Split, check_children, inputs, outputs


def split_mamba1(module: Mamba1, memory: LayerSpec | None, shard: Shard) -> Split:
    """By channels."""
    spec = vars(module)["_spec"]
    group = max(group_of(module.out_proj), group_of(module.x_proj))
    own = shard.units(spec.inner, group)
    stack = Piece("stack", (own,), spec.inner)
    pieces = {
        "in_proj": outputs(module.in_proj, own, (own[0] + spec.inner, own[1] + spec.inner)),
        "x_proj": inputs(module.x_proj, shard, own),
        "dt_proj": outputs(module.dt_proj, own),
        **dict.fromkeys(("conv1d", "A_log", "D"), stack),
        "out_proj": inputs(module.out_proj, shard, own),
    }
    check_children(module, {*pieces, "dt_layernorm", "b_layernorm", "c_layernorm"})
    here = replace(spec, inner=own[1] - own[0])
    return Split(pieces, {"_spec": here}, own_states(memory, spec.memory, here.memory), ("total",))


def split_selective_heads(module: Any, memory: LayerSpec | None, shard: Shard) -> Split:
    """By heads, of which each has its gate before its channels."""
    spec = vars(module)["_spec"]
    heads = shard.heads(spec.heads)
    (own,) = scaled([heads], spec.head_dim)
    pieces = {
        "in_proj": outputs(module.in_proj, *scaled([heads], 2 * spec.head_dim)),
        "conv1d": Piece("stack", (own,), spec.inner),
        module.reads_all: inputs(module[module.reads_all], shard, own),
        "dt_proj": outputs(module.dt_proj, heads),
        **dict.fromkeys(("dt_bias", "A_log", "D"), Piece("stack", (heads,), spec.heads)),
        "out_proj": inputs(module.out_proj, shard, own),
    }
    check_children(module, {*pieces, "B_norm", "C_norm", "dt_norm"})
    here = replace(spec, heads=heads[1] - heads[0])
    return Split(pieces, {"_spec": here}, own_states(memory, spec.memory, here.memory), ("total",))
