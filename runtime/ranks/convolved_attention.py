"""How the ranks that share a stage split attention whose keys and values pass convolutions first (Inkling,
Baichuan M1): by heads, with the filters of their channels and the last tokens that these have seen.

Of Inkling a matrix may lie in a module that does more, as `linear`, beside the lengths of heads and filters
that tokens make. All memories of the layer are asked about; those of convolutions behind the attention stay
as they are.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from runtime.cache.layout import Full, LayerSpec, Recurrent, Rotating
from runtime.ranks.pieces import Piece, Range, Shard, inputs_of, scaled
from runtime.ranks.splits import Split, check_children, inputs, outputs, split_attention

_OF_QUERIES = (
    *("q_proj", "r_proj", "sink_proj", "o_proj.gate_proj"),
    *("q_proj.linear", "relative_position_bias.linear"),
)
_OF_KEYS = (
    *("k_proj", "k_proj.linear", "k_proj.sconv.weight_proj"),
    *("v_proj", "v_proj.linear", "v_proj.sconv.weight_proj"),
)
_LENGTHS = "q_proj.norm.scale", "relative_position_bias.norm.scale"
_FILTERS = (
    *("k_sconv.conv1d.weight", "k_proj.sconv.conv1d.weight"),
    *("v_sconv.conv1d.weight", "v_proj.sconv.conv1d.weight"),
)
_STATIC = "k_proj.sconv.static_weight", "v_proj.sconv.static_weight"
"""Filters with their channels last."""
_WHOLE = {"q_norm", "k_norm", "rel_logits_proj"}


def split_convolved_attention(module: Any, memory: LayerSpec | None, shard: Shard) -> Split:
    """By query heads, with the heads of keys and values that they read."""
    heads, groups = module.head_counts
    own, read = shard.heads(heads), shard.groups(groups)
    pieces: dict[str, Piece] = {}
    for paths, count, ranges in ((_OF_QUERIES, heads, own), (_OF_KEYS, groups, read)):
        for path, part in _there(module, paths):
            if "weight" in part:
                pieces[path] = outputs(part, *scaled([ranges], part.weight.shape[-2] // count))
    pieces |= {path: Piece("stack", (own,), heads) for path, _ in _there(module, _LENGTHS)}
    for paths, axis in ((_FILTERS, 0), (_STATIC, 1)):
        for path, array in _there(module, paths):
            channels = array.shape[axis]
            ranges = scaled([read], channels // groups)
            pieces[path] = Piece("stack", ranges, channels, axis=axis)
    path = "o_proj.linear" if "linear" in module.o_proj else "o_proj"
    ((_, close),) = _there(module, [path])
    pieces[path] = inputs(close, shard, *scaled([own], inputs_of(close) // heads))
    check_children(module, {*pieces, *_WHOLE})
    counts = own[1] - own[0], read[1] - read[0]
    return Split(pieces, module.of_heads(*counts), _remembered(memory, groups, read))


def split_filtered(module: Any, memory: LayerSpec | None, shard: Shard) -> Split:
    """Of one convolution (`conv`) whose channels are those of keys, then those of values."""
    _, groups = module.head_counts
    size = vars(module)["_head_dim"]
    (keys,) = scaled([shard.groups(groups)], size)
    values = keys[0] + groups * size, keys[1] + groups * size
    pieces = {"conv": Piece("stack", (keys, values), 2 * groups * size)}
    if not isinstance(memory, Recurrent):
        return split_attention(module, memory, shard, pieces)
    split = split_attention(module, Full(groups, size), shard, pieces)
    last = memory.states["conv"]
    here = replace(last, shape=(last.shape[0], 2 * (keys[1] - keys[0])))
    return replace(split, memory=Recurrent({"conv": here}))


def _remembered(memory: LayerSpec | None, groups: int, read: Range) -> LayerSpec | None:
    count = read[1] - read[0]
    if isinstance(memory, Full | Rotating):
        return replace(memory, kv_heads=count)
    if not isinstance(memory, Recurrent) or "keys" not in memory.states:
        return memory
    states = memory.states.items()
    return Recurrent(
        {name: replace(one, shape=(one.shape[0], one.shape[1] // groups * count)) for name, one in states}
    )


def _there(module: Any, paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Those of these parts that it has."""
    for path in paths:
        part = module
        for name in path.split("."):
            part = part[name] if isinstance(part, dict) and name in part else None
        if part is not None:
            yield path, part
