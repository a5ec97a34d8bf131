"""How the ranks that share a stage split its sublayers: one rule for each kind.

Attention is split by heads, a feed-forward block by what lies between its matrices, experts alike: each rank
has a part of every expert, so that all have the same work whatever a token asks. What a sublayer opens with
is cut by outputs, what it closes with by inputs: answers then add up to that of the whole. Norms and routers
stay whole.

A rule names every child of a module, or the module cannot be split: nobody guesses what an unknown one is.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Chunked, Full, LayerSpec, Recurrent, Rotating
from runtime.errors import CannotCut
from runtime.nn.delta_net import GatedDeltaNet
from runtime.nn.mamba2 import Mamba2
from runtime.nn.mla import LatentAttention
from runtime.nn.mlp import MLP, FusedGatedMLP, GatedMLP
from runtime.nn.moe import Experts
from runtime.nn.norm import LayerNorm, RMSNorm
from runtime.nn.self_attention import Attention, FusedAttention, SelfAttention, WideNormAttention
from runtime.nn.sparse import GatedSharedMoE, SharedMoE, SoftmaxMoE
from runtime.ranks.pieces import Piece, Range, Shard, group_of, inputs_of, scaled
from runtime.records import dataclass

GATES = ("g_proj", "gate_proj")
"""What gives gates for heads, side by side."""


@dataclass(frozen=True, slots=True)
class Split:
    """What of a sublayer one rank has."""

    pieces: Mapping[str, Piece]
    """By the path of a module, or of an array, in the sublayer. What is not named stays whole."""
    changed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Attributes, by their paths, then: how many heads there are here."""
    memory: LayerSpec | None = None
    """What it remembers; None: nothing, or as much as the whole."""


def outputs(module: Any, *ranges: Range) -> Piece:
    return Piece("outputs", ranges, module.weight.shape[-2])


def inputs(module: Any, shard: Shard, *ranges: Range) -> Piece:
    """CannotCut where a range ends within a group that shares a scale."""
    group = group_of(module)
    if any(edge % group for ends in ranges for edge in ends):
        raise CannotCut(f"its columns would be cut within a group of {group}")
    return Piece("inputs", ranges, inputs_of(module), shard.index == 0)


def split_attention(module: Attention, memory: LayerSpec | None, shard: Shard) -> Split:
    """By query heads, with the heads of keys and values that they read."""
    if isinstance(module, WideNormAttention):
        raise CannotCut("its norms run over all heads")
    heads, groups = vars(module)["_heads"], vars(module)["_kv_heads"]
    own, read = shard.heads(heads), shard.groups(groups)
    pieces = {"o_proj": inputs(module.o_proj, shard, *scaled([own], inputs_of(module.o_proj) // heads))}
    changed: dict[str, Any] = {"_heads": own[1] - own[0], "_kv_heads": read[1] - read[0]}
    if isinstance(module, FusedAttention):
        size = vars(module)["_head_dim"]
        (q,), (k,) = scaled([own], size), scaled([read], size)
        k, v = ((k[0] + at * size, k[1] + at * size) for at in (heads, heads + groups))
        pieces["qkv_proj"] = outputs(module.qkv_proj, q, k, v)
        changed["_cuts"] = [q[1] - q[0], q[1] - q[0] + k[1] - k[0]]
    elif isinstance(module, SelfAttention):
        for name in ("k_proj", "v_proj"):
            pieces[name] = _by_heads(module[name], groups, read)
        for name in ("q_proj", *(name for name in GATES if name in module)):
            pieces[name] = _by_heads(module[name], heads, own)
    for name, count, ranges in (("q_norm", heads, own), ("k_norm", groups, read)):
        if name in module and module[name].weight.ndim > 1:
            pieces[name] = Piece("stack", (ranges,), count)
    if "sinks" in module:
        pieces["sinks"] = Piece("stack", (own,), heads)
    of_one_head = (child for child in module.values() if _is_norm(child, vars(module)["_head_dim"]))
    _check_children(module, {*pieces}, of_one_head)
    changed["_attends"] = replace(module.heads(), count=changed["_heads"], groups=changed["_kv_heads"])
    if not isinstance(memory, Full | Rotating | Chunked) or memory.kv_heads != groups:
        raise CannotCut("its layer's memory is not that of its own heads")
    return Split(pieces, changed, replace(memory, kv_heads=changed["_kv_heads"]))


def split_latent(module: LatentAttention, memory: LayerSpec | None, shard: Shard) -> Split:
    """By heads; what is remembered are latents that all heads read, so every rank has all of them."""
    shape = vars(module)["_shape"]
    own = shard.heads(shape.heads)
    queries = "q_proj" if shape.query_rank is None else "q_b_proj"
    pieces = {
        queries: outputs(module[queries], *scaled([own], shape.content + shape.position)),
        "k_b_proj": Piece("stack", (own,), shape.heads),
        "v_b_proj": Piece("stack", (own,), shape.heads),
        "o_proj": inputs(module.o_proj, shard, *scaled([own], shape.value)),
    }
    whole = {"q_a_proj", "q_a_layernorm", "kv_a_proj_with_mqa", "kv_a_layernorm", "indexer"}
    _check_children(module, {*pieces, *whole})
    return Split(pieces, {"_shape": replace(shape, heads=own[1] - own[0])}, memory)


def split_mlp(module: Any, _memory: LayerSpec | None, shard: Shard) -> Split:
    """By what lies between its matrices."""
    inner = inputs_of(module.down_proj)
    own = shard.units(inner, group_of(module.down_proj))
    pieces = {"down_proj": inputs(module.down_proj, shard, own)}
    for name in ("gate_proj", "up_proj"):
        if name in module:
            pieces[name] = outputs(module[name], own)
    if "gate_up_proj" in module:
        pieces["gate_up_proj"] = outputs(module.gate_up_proj, own, (inner + own[0], inner + own[1]))
    _check_children(module, {*pieces, *(["act_fn"] if _is_pointwise(module.get("act_fn")) else [])})
    return Split(pieces)


def split_sparse(module: Any, memory: LayerSpec | None, shard: Shard) -> Split:
    """Experts and what always answers; who is asked, and how much each counts, is decided by every rank."""
    pieces: dict[str, Piece] = {}
    for name in ("switch_mlp", "shared_expert", "shared_experts"):
        if name in module:
            if type(module[name]) not in (Experts, GatedMLP):
                raise CannotCut(f"{name} is a {type(module[name]).__name__}")
            own = split_mlp(module[name], memory, shard).pieces
            pieces.update({f"{name}.{path}": piece for path, piece in own.items()})
    _check_children(module, {"gate", "shared_expert_gate", "switch_mlp", "shared_expert", "shared_experts"})
    return Split(pieces)


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
    _check_children(module, {*pieces, "norm"})
    own = replace(spec, key_heads=keys[1] - keys[0], value_heads=values[1] - values[0])
    return Split(pieces, {"_spec": own}, _recurrent(memory, spec.memory, own.memory))


def split_mamba2(module: Mamba2, memory: LayerSpec | None, shard: Shard) -> Split:
    """By heads, with the B and C of their groups; norms have to end with a rank's channels, too."""
    spec = vars(module)["_spec"]
    if spec.norm and spec.norm_groups % shard.count:
        raise CannotCut(f"its norm runs over channels of several ranks, in {spec.norm_groups} groups")
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
    _check_children(module, set(pieces))
    normed = max(spec.norm_groups // shard.count, 1)
    own = replace(spec, heads=heads[1] - heads[0], groups=groups[1] - groups[0], norm_groups=normed)
    changed: dict[str, Any] = {"_spec": own, **({"norm.groups": normed} if spec.norm else {})}
    scales = vars(module)["_scales"]
    if scales is not None:
        changed["_scales"] = mx.concatenate([scales[start:stop] for start, stop in opening])
    return Split(pieces, changed, _recurrent(memory, spec.memory, own.memory))


Rule = Callable[[Any, LayerSpec | None, Shard], Split]

ATTENTION, RECURRENT, NOTHING = (Full, Rotating, Chunked), (Recurrent,), ()

RULES: tuple[tuple[type, tuple[type, ...], Rule], ...] = (
    (Attention, ATTENTION, split_attention),
    (LatentAttention, ATTENTION, split_latent),
    (GatedDeltaNet, RECURRENT, split_delta),
    (Mamba2, RECURRENT, split_mamba2),
    (GatedSharedMoE, NOTHING, split_sparse),
    (SoftmaxMoE, NOTHING, split_sparse),
    (SharedMoE, NOTHING, split_sparse),
    (Experts, NOTHING, split_mlp),
    (GatedMLP, NOTHING, split_mlp),
    (FusedGatedMLP, NOTHING, split_mlp),
    (MLP, NOTHING, split_mlp),
)
"""By the class of a sublayer, with the kinds of memory that it may have."""
OF_FAMILIES = (Attention, LatentAttention)
"""Families make their own of these; of the others only the class itself is known."""


def rule_for(module: Any) -> tuple[tuple[type, ...], Rule] | None:
    for kind, memories, rule in RULES:
        if type(module) is kind or (kind in OF_FAMILIES and isinstance(module, kind)):
            return memories, rule
    return None


def _check_children(module: Any, known: set[str], also: Iterable[Any] = ()) -> None:
    """known: paths of what a rule knows. also: children that stay whole."""
    known, whole = {path.partition(".")[0] for path in known}, {id(child) for child in also}
    unknown = sorted(
        name
        for name, child in module.items()
        if name not in known and id(child) not in whole and not name.startswith("_")
    )
    if unknown:
        raise CannotCut(f"nobody says how its {unknown[0]} is split")


def _by_heads(matrix: Any, heads: int, own: Range) -> Piece:
    return outputs(matrix, *scaled([own], matrix.weight.shape[0] // heads))


def _is_norm(module: Any, size: int) -> bool:
    """Of vectors of this size, one by one?"""
    return isinstance(module, RMSNorm | LayerNorm) and module.weight.shape == (size,)


def _is_pointwise(activation: Any) -> bool:
    """Does it treat all numbers alike?"""
    if not isinstance(activation, nn.Module):
        return activation is not None
    return all(array.size == 1 for array in activation.values() if hasattr(array, "size"))


def _recurrent(memory: LayerSpec | None, whole: Recurrent, own: Recurrent) -> Recurrent:
    if memory != whole:
        raise CannotCut("its layer's memory is not its own")
    return own
