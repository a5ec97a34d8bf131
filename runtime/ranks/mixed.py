"""How the ranks that share a stage split what mixes each token with the one before it (RWKV-7): folds by
heads, feed-forward parts by what lies between their matrices. The token before is remembered whole, by all.
"""

from dataclasses import replace
from typing import Any

from runtime.cache.layout import LayerSpec, Recurrent
from runtime.ranks.pieces import Piece, Shard, group_of, inputs_of, scaled
from runtime.ranks.splits import Split, check_children, inputs, outputs

_PAIRS = "w_lora.up", "a_lora.up", "g_lora.up", "v_lora.up"
"""What widens numbers of low rank, which every rank makes for itself."""
_BY_CHANNEL = "k_k", "k_a", "r_k", "g_norm"


def split_fold(module: Any, memory: LayerSpec | None, shard: Shard) -> Split:
    """By heads, each with its norm."""
    channels, size = inputs_of(module.o_proj), module.head_size
    heads = shard.heads(channels // size)
    (own,) = scaled([heads], size)
    # Values of the first layer, which has no share of another's, are read whole by all.
    names = ("r_proj", "k_proj", "v_proj") if "v_lora" in module else ("r_proj", "k_proj")
    opening = {name: module[name] for name in names}
    opening |= {path: module[path[:6]].up for path in _PAIRS if path[:6] in module}
    pieces = {
        **{path: outputs(part, own) for path, part in opening.items()},
        **dict.fromkeys(_BY_CHANNEL, Piece("stack", (own,), channels)),
        "o_proj": inputs(module.o_proj, shard, own),
    }
    check_children(module, {*pieces, "v_proj", *(name for name in module if name.startswith("x_"))})
    if isinstance(memory, Recurrent) and "state" in memory.states:
        state = memory.states["state"]
        memory = Recurrent({"state": replace(state, shape=(heads[1] - heads[0], *state.shape[1:]))})
    return Split(pieces, module.of_channels(*own), memory)


def split_mixed_mlp(module: Any, memory: LayerSpec | None, shard: Shard) -> Split:
    """By what lies between its matrices."""
    own = shard.units(inputs_of(module.value), group_of(module.value))
    pieces = {"key": outputs(module.key, own), "value": inputs(module.value, shard, own)}
    check_children(module, {*pieces, "x_k"})
    return Split(pieces, memory=memory)
