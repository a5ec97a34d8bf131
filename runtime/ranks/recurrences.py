"""How the ranks that share a stage split recurrent layers: by heads, each with its part of the state."""

from dataclasses import replace
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec, Recurrent
from runtime.errors import CannotCut
from runtime.nn.gated_norm import GatedRMSNorm
from runtime.nn.recurrent.delta_net import GatedDeltaNet
from runtime.nn.recurrent.kimi_delta import KimiMixer
from runtime.nn.recurrent.lightning import Lightning, LightningAttention
from runtime.nn.recurrent.mamba2 import Mamba2
from runtime.nn.recurrent.mlstm import MLSTM
from runtime.nn.recurrent.rg_lru import RecurrentBlock, rg_lru_memory
from runtime.ranks.norms import PartedGatedNorm, SumPlace
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
    return Split(pieces, {"_spec": own}, own_states(memory, spec.memory, own.memory))


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
    count = max(spec.norm_groups // shard.count, 1)
    own = replace(spec, heads=heads[1] - heads[0], groups=groups[1] - groups[0], norm_groups=count)
    normed = _normed("norm", module.norm, own.inner, shard) if spec.norm else Split({})
    changed: dict[str, Any] = {"_spec": own, **normed.changed}
    scales = vars(module)["_scales"]
    if scales is not None:
        changed["_scales"] = mx.concatenate([scales[start:stop] for start, stop in opening])
    return Split(pieces, changed, own_states(memory, spec.memory, own.memory), normed.within)


def split_kimi(module: KimiMixer, memory: LayerSpec | None, shard: Shard) -> Split:
    """By heads."""
    spec = vars(module)["_spec"]
    heads = shard.heads(spec.heads)
    (own,) = scaled([heads], spec.size)
    mixed = tuple((own[0] + at * spec.inner, own[1] + at * spec.inner) for at in range(3))
    by_channel = (name for name in ("f_proj", "f_b_proj", "g_proj", "g_b_proj") if name in module)
    pieces = {
        "qkv_proj": outputs(module.qkv_proj, *mixed),
        "conv1d": Piece("stack", mixed, 3 * spec.inner),
        **{name: outputs(module[name], own) for name in by_channel},
        "b_proj": outputs(module.b_proj, heads),
        "dt_bias": Piece("stack", (own,), spec.inner),
        "A_log": Piece("stack", (heads,), spec.heads, axis=2),
        "o_proj": inputs(module.o_proj, shard, own),
    }
    check_children(module, {*pieces, "f_a_proj", "g_a_proj", "o_norm"})
    here = replace(spec, heads=heads[1] - heads[0])
    return Split(pieces, {"_spec": here}, own_states(memory, spec.memory, here.memory))


def split_lightning(module: Lightning, memory: LayerSpec | None, shard: Shard) -> Split:
    """By heads, of which one matrix has those of queries, keys and values in turn, or one kind behind the
    other.
    """
    spec = vars(module)["_spec"]
    heads = shard.heads(spec.heads)
    (own,) = scaled([heads], spec.head_dim)
    in_turn = isinstance(module, LightningAttention)
    behind = tuple((own[0] + at * spec.inner, own[1] + at * spec.inner) for at in range(3))
    mixed = scaled([heads], 3 * spec.head_dim) if in_turn else behind
    gate, norm, close = ("output_gate", "norm", "out_proj") if in_turn else ("g_proj", "g_norm", "o_proj")
    pieces = {
        "qkv_proj": outputs(module.qkv_proj, *mixed),
        gate: outputs(module[gate], own),
        norm: Piece("stack", (own,), spec.inner),
        close: inputs(module[close], shard, own),
    }
    check_children(module, {*pieces, "q_norm", "k_norm"})
    here = replace(spec, heads=heads[1] - heads[0])
    normed = _normed(norm, module[norm], here.inner, shard)
    changed = {"_spec": here, "_fading": vars(module)["_fading"].of_heads(*heads), **normed.changed}
    return Split(pieces, changed, own_states(memory, spec.memory, here.memory), normed.within)


def split_mlstm(module: MLSTM, memory: LayerSpec | None, shard: Shard) -> Split:
    """By heads, each with its gates and its norm."""
    spec = vars(module)["_spec"]
    heads = shard.heads(spec.heads)
    (key,), (value,) = scaled([heads], spec.key), scaled([heads], spec.value)
    pieces = {
        **{name: outputs(module[name], key) for name in ("q", "k")},
        **{name: outputs(module[name], value) for name in ("v", "ogate_preact")},
        **{name: outputs(module[name], heads) for name in ("igate_preact", "fgate_preact")},
        "multihead_norm": Piece("stack", (value,), spec.heads * spec.value),
        "out_proj": inputs(module.out_proj, shard, value),
    }
    check_children(module, {*pieces})
    here = replace(spec, heads=heads[1] - heads[0])
    return Split(pieces, {"_spec": here}, own_states(memory, spec.memory, here.memory))


def split_rg_lru(module: RecurrentBlock, memory: LayerSpec | None, shard: Shard) -> Split:
    """By heads, each with its gates."""
    count, block, _ = module.rg_lru.input_gate_weight.shape
    heads, width = shard.heads(count), count * block
    (own,) = scaled([heads], block)
    kinds = ("input_gate_weight", "input_gate_bias", "recurrent_gate_weight", "recurrent_gate_bias")
    pieces = {
        "linear_y": outputs(module.linear_y, own),
        "linear_x": outputs(module.linear_x, own),
        "conv_1d": Piece("stack", (own,), width),
        "rg_lru.recurrent_param": Piece("stack", (own,), width),
        **dict.fromkeys((f"rg_lru.{kind}" for kind in kinds), Piece("stack", (heads,), count)),
        "linear_out": inputs(module.linear_out, shard, own),
    }
    check_children(module, set(pieces))
    taps = module.conv_1d.weight.shape[1]
    here = rg_lru_memory(own[1] - own[0], taps)
    return Split(pieces, memory=own_states(memory, rg_lru_memory(width, taps), here))


def _normed(path: str, norm: GatedRMSNorm, own: int, shard: Shard) -> Split:
    """A norm under a gate, where it runs over channels of which a rank has `own`. Its weight is split by who
    asks.
    """
    if norm.groups % shard.count == 0:
        return Split({}, {f"{path}.groups": norm.groups // shard.count})
    parted = PartedGatedNorm(norm, SumPlace.of(shard, own, norm.groups))
    return Split({}, {path: parted}, within=(f"{path}.total",))


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


def own_states(memory: LayerSpec | None, whole: Recurrent, own: Recurrent) -> Recurrent:
    if memory != whole:
        raise CannotCut("its layer's memory is not its own")
    return own
