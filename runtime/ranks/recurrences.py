"""How the ranks that share a stage split recurrent layers: by heads, each with its part of the state."""

from dataclasses import replace
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec, Recurrent
from runtime.errors import CannotCut
from runtime.nn.delta_net import GatedDeltaNet
from runtime.nn.kimi_delta import KimiDelta
from runtime.nn.mamba1 import Mamba1
from runtime.nn.mamba2 import Mamba2
from runtime.ranks.norms import PartedGatedNorm, Place
from runtime.ranks.pieces import Piece, Shard, group_of, inputs_of, scaled
from runtime.ranks.splits import Split, check_children, inputs, outputs


def split_delta(module: GatedDeltaNet, memory: LayerSpec | None, shard: Shard) -> Split:
    """By key heads, with the value heads that each serves."""
    spec = vars(module)["_spec"]
    keys, values = shard.heads(spec.key_heads), shard.heads(spec.value_heads)
    (k,), (v,) = scaled([keys], spec.key_dim), scaled([values], spec.value_dim)
    mixed = (k, (k[0] + spec.keys, k[1] + spec.keys), (v[0] + 2 * spec.keys, v[1] + 2 * spec.keys))
    stack = Piece("stack", (values,), spec.value_heads)
    pieces = {
        "in_proj_qkv": outputs(module.in_proj_qkv, *mixed),
        "in_proj_z": outputs(module.in_proj_z, v),
        "in_proj_a": outputs(module.in_proj_a, values),
        "in_proj_b": outputs(module.in_proj_b, values),
        "conv1d": Piece("stack", mixed, spec.channels),
        "dt_bias": stack,
        "A_log": stack,
        "out_proj": inputs(module.out_proj, shard, v),
    }
    check_children(module, {*pieces, "norm"})
    own = replace(spec, key_heads=keys[1] - keys[0], value_heads=values[1] - values[0])
    return Split(pieces, {"_spec": own}, _recurrent(memory, spec.memory, own.memory))


def split_mamba2(module: Mamba2, memory: LayerSpec | None, shard: Shard) -> Split:
    """By heads, with the B and C of their groups."""
    spec = vars(module)["_spec"]
    heads, groups = shard.heads(spec.heads), shard.groups(spec.groups)
    (x,), (b,) = scaled([heads], spec.head_dim), scaled([groups], spec.state)
    shared = spec.groups * spec.state
    mixed = (x, *((b[0] + at, b[1] + at) for at in (spec.inner, spec.inner + shared)))
    steps = spec.inner + spec.channels
    behind = ((start + spec.inner, stop + spec.inner) for start, stop in mixed)
    opening = (x, *behind, (heads[0] + steps, heads[1] + steps))
    stack = Piece("stack", (heads,), spec.heads)
    pieces = {
        "in_proj": outputs(module.in_proj, *opening),
        "conv1d": Piece("stack", mixed, spec.channels),
        **dict.fromkeys(("dt_bias", "A_log", "D"), stack),
        "out_proj": inputs(module.out_proj, shard, x),
    }
    if spec.norm:
        pieces["norm"] = Piece("stack", (x,), spec.inner)
    check_children(module, set(pieces))
    normed = max(spec.norm_groups // shard.count, 1)
    own = replace(spec, heads=heads[1] - heads[0], groups=groups[1] - groups[0], norm_groups=normed)
    changed: dict[str, Any] = {"_spec": own}
    scales, within = vars(module)["_scales"], ()
    if scales is not None:
        changed["_scales"] = mx.concatenate([scales[start:stop] for start, stop in opening])
    if spec.norm and spec.norm_groups % shard.count == 0:
        changed["norm.groups"] = normed
    elif spec.norm:
        changed["norm"] = PartedGatedNorm(module.norm, Place.of(shard, own.inner, spec.norm_groups))
        within = ("norm.total",)
    return Split(pieces, changed, _recurrent(memory, spec.memory, own.memory), within)


def split_mamba1(module: Mamba1, memory: LayerSpec | None, shard: Shard) -> Split:
    """By channels. What all of them make step sizes, B and C of is summed, and these are on every rank."""
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
    return Split(pieces, {"_spec": here}, _recurrent(memory, spec.memory, here.memory), ("total",))


def split_kimi(module: KimiDelta, memory: LayerSpec | None, shard: Shard) -> Split:
    """By heads."""
    spec = vars(module)["_spec"]
    heads = shard.heads(spec.heads)
    (own,) = scaled([heads], spec.size)
    mixed = tuple((own[0] + at * spec.inner, own[1] + at * spec.inner) for at in range(3))
    pieces = {
        "qkv_proj": outputs(module.qkv_proj, *mixed),
        "conv1d": Piece("stack", mixed, 3 * spec.inner),
        "f_b_proj": outputs(module.f_b_proj, own),
        "g_b_proj": outputs(module.g_b_proj, own),
        "b_proj": outputs(module.b_proj, heads),
        "dt_bias": Piece("stack", (own,), spec.inner),
        "A_log": Piece("stack", (heads,), spec.heads, axis=2),
        "o_proj": inputs(module.o_proj, shard, own),
    }
    check_children(module, {*pieces, "f_a_proj", "g_a_proj", "o_norm"})
    here = replace(spec, heads=heads[1] - heads[0])
    return Split(pieces, {"_spec": here}, _recurrent(memory, spec.memory, here.memory))


def split_convolved(module: Any, memory: LayerSpec | None, shard: Shard) -> Split:
    """By channels, of which one matrix gives what comes before, what comes behind, and what is convolved."""
    channels = inputs_of(module.out_proj)
    own = shard.units(channels, group_of(module.out_proj))
    opening = (own, *((own[0] + at * channels, own[1] + at * channels) for at in (1, 2)))
    pieces = {
        "in_proj": outputs(module.in_proj, *opening),
        "conv": Piece("stack", (own,), channels),
        "out_proj": inputs(module.out_proj, shard, own),
    }
    check_children(module, set(pieces))
    if not isinstance(memory, Recurrent) or set(memory.states) != {"conv"}:
        raise CannotCut("its layer's memory is not its own")
    last = memory.states["conv"]
    here = replace(last, shape=(*last.shape[:-1], own[1] - own[0]))
    return Split(pieces, memory=Recurrent({"conv": here}))


def _recurrent(memory: LayerSpec | None, whole: Recurrent, own: Recurrent) -> Recurrent:
    if memory != whole:
        raise CannotCut("its layer's memory is not its own")
    return own
