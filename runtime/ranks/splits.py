"""How the ranks that share a stage split its sublayers: one rule for each kind.

Attention is split by heads, a feed-forward block by what lies between its matrices, experts alike: each rank
has a part of every expert, so that all have the same work whatever a token asks. What a sublayer opens with
is cut by outputs, what it closes with by inputs: answers then add up to that of the whole. Norms and routers
stay whole.

A rule names every child of a module, or the module cannot be split: nobody guesses what an unknown one is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

import mlx.nn as nn

from runtime.cache.layout import Chunked, Encoder, Full, LayerSpec, Rotating
from runtime.errors import CannotCut
from runtime.nn.attention.block_choice import ChoosingAttention
from runtime.nn.attention.mla import LatentAttention
from runtime.nn.attention.self_attention import WideNormAttention
from runtime.nn.feed_forward.custom_gate import CustomGateExperts, CustomGateMLP
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.mlp import MLP, FusedGatedMLP, GatedMLP
from runtime.nn.norm import LayerNorm, PlainRMS, RMSNorm, UnitNorm
from runtime.ranks.norms import PartedNorm, PartedUnit
from runtime.ranks.pieces import Piece, Range, Shard, group_of, inputs_of, scaled
from runtime.records import dataclass

QUERIES = ("q_proj", "q", "g_proj", "gate_proj")
"""What gives queries, and gates for what heads see."""
KEYS_AND_VALUES = ("k_proj", "v_proj", "k", "v")
CLOSES_HEADS = "o_proj", "o"
OPENS = "gate_proj", "up_proj", "wi", "wi_0", "wi_1"
"""Of feed-forward blocks."""
CLOSES = "down_proj", "wo"
BIASES = "relative_attention_bias"
"""By distance: a number for each head in every row."""
BY_HEAD = "sinks", "head_gate", "head_gain"
"""What has one axis first, of the heads of queries."""
BY_CHANNEL = "sqk", "s_gate"
"""What has one axis, of the channels of these heads."""
BY_INNER = "suv_gate", "suv_up"
"""What has one axis, of what lies between the matrices of a feed-forward block."""
DENSE = GatedMLP, FusedGatedMLP, MLP, CustomGateMLP
"""Feed-forward blocks without experts."""
EXPERTS = Experts, CustomGateExperts


@dataclass(frozen=True, slots=True)
class Split:
    """What of a sublayer one rank has."""

    pieces: Mapping[str, Piece]
    """By the path of a module, or of an array, in the sublayer. What is not named stays whole."""
    changed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Attributes, by their paths, then: how many heads there are here."""
    memory: LayerSpec | None = None
    """What it remembers; None: nothing, or as much as the whole."""
    within: tuple[str, ...] = ()
    """Attributes, by their paths, that then sum over the ranks what stands between its matrices."""


def outputs(module: Any, *ranges: Range) -> Piece:
    return Piece("outputs", ranges, module.weight.shape[-2])


def inputs(module: Any, shard: Shard, *ranges: Range) -> Piece:
    """CannotCut where a range ends within a group that shares a scale."""
    group = group_of(module)
    if any(edge % group for ends in ranges for edge in ends):
        raise CannotCut(f"its columns would be cut within a group of {group}")
    return Piece("inputs", ranges, inputs_of(module), shard.index == 0)


def split_attention(
    module: Any, memory: LayerSpec | None, shard: Shard, more: Mapping[str, Piece] = MappingProxyType({})
) -> Split:
    """By query heads, with the heads of keys and values that they read. more: pieces of what
    else it has.
    """
    heads, groups = module.head_counts
    remembers = not getattr(module, "looks_ahead", False)
    if not remembers:
        memory = Full(groups, module.head_dim)  # as if, for a text that is read whole
    if not isinstance(memory, Full | Rotating | Chunked | Encoder) or memory.kv_heads != groups:
        raise CannotCut("its layer's memory is not that of its own heads")
    by = _Heads(heads, groups, shard.heads(heads), shard.groups(groups), memory.head_dim)
    close = _named(module, CLOSES_HEADS)
    pieces = {
        close: inputs(module[close], shard, *scaled([by.own], inputs_of(module[close]) // heads)),
        **_opening(module, by),
        **_norms(module, by),
        **_beside(module, by),
    }
    together = _normed_together(module, pieces[close], shard)
    pieces |= {**more, **together.pieces, **_added(module, pieces)}
    of_one_head = (child for child in module.values() if _is_norm(child, by.size))
    check_children(module, {*pieces, "indexer"}, of_one_head)
    changed, alibi = {**module.of_heads(*by.counts), **together.changed}, vars(module).get("_alibi")
    if alibi is not None:
        changed["_alibi"] = alibi.of_heads(*by.own)
    within = together.within
    if isinstance(module, WideNormAttention):
        changed |= module.of_heads_here(*by.counts, shard.count)
        within = (*within, "total")
    return Split(pieces, changed, replace(memory, kv_heads=by.counts[1]) if remembers else None, within)


@dataclass(frozen=True, slots=True)
class _Heads:
    """Which heads of an attention one rank has."""

    heads: int
    """Of queries, of the whole."""
    groups: int
    """Of keys and values, of the whole."""
    own: Range
    read: Range
    """Those of keys and values that its own read."""
    size: int
    """Numbers of one."""

    @property
    def counts(self) -> tuple[int, int]:
        return self.own[1] - self.own[0], self.read[1] - self.read[0]


def _opening(module: Any, by: _Heads) -> dict[str, Piece]:
    """Of what makes queries, keys and values: each by itself, or in one matrix, by kinds or by groups."""
    pieces: dict[str, Piece] = {}
    for names, count, ranges in ((QUERIES, by.heads, by.own), (KEYS_AND_VALUES, by.groups, by.read)):
        for name in names:
            if name in module:
                unit = module[name].weight.shape[0] // count
                pieces[name] = outputs(module[name], *scaled([ranges], unit))
    if "qkv_proj" in module:
        (q,), (k,) = scaled([by.own], by.size), scaled([by.read], by.size)
        k, v = ((k[0] + at * by.size, k[1] + at * by.size) for at in (by.heads, by.heads + by.groups))
        pieces["qkv_proj"] = outputs(module.qkv_proj, q, k, v)
    if "query_key_value" in module:
        ranges = scaled(_by_group(by.own, by.read, by.heads // by.groups), by.size)
        pieces["query_key_value"] = outputs(module.query_key_value, *ranges)
    return pieces


def _norms(module: Any, by: _Heads) -> dict[str, Piece]:
    """Of norms that have weights of their own for each head, one behind the other."""
    pieces: dict[str, Piece] = {}
    for name, count, ranges in (("q_norm", by.heads, by.own), ("k_norm", by.groups, by.read)):
        weight = module[name].get("weight") if name in module else None
        if weight is not None and (weight.ndim > 1 or isinstance(module, WideNormAttention)):
            pieces[name] = Piece("stack", scaled([ranges], weight.shape[0] // count), weight.shape[0])
    return pieces


def _beside(module: Any, by: _Heads) -> dict[str, Piece]:
    """Of arrays that are not matrices."""
    channels = scaled([by.own], by.size)
    pieces = {name: Piece("stack", (by.own,), by.heads) for name in BY_HEAD if name in module}
    pieces |= {name: Piece("stack", channels, by.heads * by.size) for name in BY_CHANNEL if name in module}
    if BIASES in module:
        pieces[BIASES] = Piece("stack", (by.own,), by.heads, axis=1)
    return pieces


def _named(module: Any, names: Sequence[str]) -> str:
    """The one of these that it has."""
    return next(name for name in names if name in module)


def _added(module: Any, pieces: Mapping[str, Piece]) -> dict[str, Piece]:
    """Of matrices whose products are added to those of others."""
    return {path: pieces[to] for path, to in getattr(module, "added_to", {}).items()}


def _normed_together(module: Any, close: Piece, shard: Shard) -> Split:
    """The norm, if it says that it has one, of all that its closing matrix reads. Nothing else is split."""
    name = getattr(module, "norms_together", None)
    if name is None:
        return Split({})
    its = module[name]
    norm = PartedUnit(its) if isinstance(its, UnitNorm) else PartedNorm(its, shard)
    return Split({name: replace(close, along="stack")}, {name: norm}, within=(f"{name}.total",))


def split_choosing(module: ChoosingAttention, memory: LayerSpec | None, shard: Shard) -> Split:
    """Each group has an index head; the one index key, which all read, is on every rank."""
    if not isinstance(memory, Full):
        raise CannotCut("its layer's memory is not that of its own heads")
    (_, groups), index = module.head_counts, vars(module)["_index"]
    read = shard.groups(groups)
    queries = outputs(module.indexer.q_proj, *scaled([read], index.size))
    plain = Full(groups, memory.value_dim or memory.head_dim)
    split = split_attention(module, plain, shard, {"indexer.q_proj": queries})
    return replace(split, memory=index.memory(read[1] - read[0], plain.head_dim))


def _by_group(own: Range, read: Range, each: int) -> list[Range]:
    """Heads of one matrix, in which the `each` queries of a group come before its key and its value."""
    found: list[Range] = []
    for group in range(*read):
        first, before = group * each, group * (each + 2)
        start, stop = (min(max(head - first, 0), each) for head in own)
        found += [(before + start, before + stop), (before + each, before + each + 2)]
    return found


def split_latent(module: LatentAttention, memory: LayerSpec | None, shard: Shard) -> Split:
    """By heads; what is remembered are latents that all heads read, so every rank has all of them."""
    shape = vars(module)["_shape"]
    own = shard.heads(shape.heads)
    queries = next(name for name in ("q_proj", "q_b_proj", "q_gate_proj") if name in module)
    each = shape.content + shape.position + (shape.value if queries == "q_gate_proj" else 0)
    pieces = {
        queries: outputs(module[queries], *scaled([own], each)),
        "k_b_proj": Piece("stack", (own,), shape.heads),
        "v_b_proj": Piece("stack", (own,), shape.heads),
        "o_proj": inputs(module.o_proj, shard, *scaled([own], shape.value)),
    }
    if "g_proj" in module:
        gate: Any = module.g_proj
        each = gate.weight.shape[0] // shape.heads  # one for each head, or for each of its numbers
        pieces["g_proj"] = outputs(gate, *scaled([own], each))
    if "gate_proj" in module:
        pieces["gate_proj"] = outputs(module.gate_proj, *scaled([own], shape.value))
    for name in ("sinks", "softmax_scaling"):
        if name in module:
            pieces[name] = Piece("stack", (own,), shape.heads)
    whole = {"q_a_proj", "q_a_layernorm", "kv_a_proj_with_mqa", "kv_a_layernorm", "indexer"}
    check_children(module, {*pieces, *whole})
    return Split(pieces, {"_shape": replace(shape, heads=own[1] - own[0])}, memory)


def split_mlp(module: Any, _memory: LayerSpec | None, shard: Shard) -> Split:
    """By what lies between its matrices."""
    close = _named(module, CLOSES)
    inner = inputs_of(module[close])
    own = shard.units(inner, group_of(module[close]))
    pieces = {close: inputs(module[close], shard, own)}
    for name in OPENS:
        if name in module:
            rows = module[name].weight.shape[-2] // inner  # two where those of a gate come in turn
            pieces[name] = outputs(module[name], *scaled([own], rows))
    for name in BY_INNER:
        if name in module:
            pieces[name] = Piece("stack", (own,), inner)
    if "gate_up_proj" in module:
        pieces["gate_up_proj"] = outputs(module.gate_up_proj, own, (inner + own[0], inner + own[1]))
    together = _normed_together(module, pieces[close], shard)
    pieces |= {**together.pieces, **_added(module, pieces)}
    whole = {"global_scale", *(["act_fn"] if _is_pointwise(module.get("act_fn")) else [])}
    check_children(module, {*pieces, *whole})
    within = ("total",) if hasattr(module, "total") else ()
    return Split(pieces, together.changed, within=(*within, *together.within))


def split_sparse(module: Any, memory: LayerSpec | None, shard: Shard) -> Split:
    """What it `adds` up; who is asked, and how much each counts, is decided by every rank."""
    pieces: dict[str, Piece] = {}
    for name in module.adds:
        if name in module:
            if type(module[name]) not in (*EXPERTS, *DENSE):
                raise CannotCut(f"{name} is a {type(module[name]).__name__}")
            own = split_mlp(module[name], memory, shard).pieces
            pieces.update({f"{name}.{path}": piece for path, piece in own.items()})
    return Split(pieces)


def check_children(module: Any, known: set[str], also: Iterable[Any] = ()) -> None:
    """known: paths of what a rule knows. also: children that stay whole."""
    known, whole = {path.partition(".")[0] for path in known}, {id(child) for child in also}
    unknown = sorted(
        name
        for name, child in module.items()
        if name not in known and id(child) not in whole and not name.startswith("_")
    )
    if unknown:
        raise CannotCut(f"it is not known how its {unknown[0]} is split")


def _is_norm(module: Any, size: int) -> bool:
    """Of vectors of this size, one by one?"""
    if isinstance(module, PlainRMS):
        return True
    return isinstance(module, RMSNorm | LayerNorm) and module.weight.shape == (size,)


def _is_pointwise(activation: Any) -> bool:
    """Does it treat all numbers alike?"""
    if not isinstance(activation, nn.Module):
        return activation is not None
    return all(array.size == 1 for array in activation.values() if hasattr(array, "size"))
