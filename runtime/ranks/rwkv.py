"""How the ranks that share a stage split what mixes each token with the one before it (RWKV): folds by
heads, feed-forward parts by what lies between their matrices. The token before is remembered whole, by all.
"""

from dataclasses import replace
from typing import Any

from runtime.cache.layout import LayerSpec, Recurrent
from runtime.ranks.pieces import Piece, Shard, group_of, inputs_of, scaled
from runtime.ranks.splits import Split, check_children, inputs, outputs
from runtime.ranks.trunk import inside

_OPENS = (
    *("r_proj", "k_proj", "v_proj", "w_lora.up", "a_lora.up", "g_lora.up", "v_lora.up"),
    *("receptance", "key", "value", "gate", "decay_up"),
)
"""What gives numbers of channels. Others widen numbers of low rank, which every rank makes for itself."""
_CLOSES = "o_proj", "output"
_BY_CHANNEL = "k_k", "k_a", "r_k", "g_norm", "first", "decay", "ln_x"
_WHOLE = "x_", "mix_"
"""How names begin of what mixes tokens, of all channels; some widen numbers of low rank, too."""


def split_fold(module: Any, memory: LayerSpec | None, shard: Shard) -> Split:
    """By heads, each with its norm."""
    closes = next(name for name in _CLOSES if name in module)
    channels, size = inputs_of(module[closes]), module.head_size
    heads = shard.heads(channels // size)
    (own,) = scaled([heads], size)
    # Values of RWKV-7's first layer, which has no share of another's, are read whole by all.
    whole = {"v_proj"} if "v_lora" not in module else set[str]()
    opening = (path for path in _OPENS if path not in whole and path.partition(".")[0] in module)
    pieces = {
        **{path: outputs(inside(module, path), own) for path in opening},
        **{name: Piece("stack", (own,), channels) for name in _BY_CHANNEL if name in module},
        closes: inputs(module[closes], shard, own),
    }
    mixing = (name for name in module if name.startswith(_WHOLE))
    check_children(module, {*pieces, *whole, *mixing, "decay_down"})
    if isinstance(memory, Recurrent) and "state" in memory.states:
        state = memory.states["state"]
        memory = Recurrent({"state": replace(state, shape=(heads[1] - heads[0], *state.shape[1:]))})
    return Split(pieces, module.of_channels(*own), memory)


def split_mixed_mlp(module: Any, memory: LayerSpec | None, shard: Shard) -> Split:
    """By what lies between its matrices. What opens its answer, every rank makes for itself."""
    own = shard.units(inputs_of(module.value), group_of(module.value))
    pieces = {"key": outputs(module.key, own), "value": inputs(module.value, shard, own)}
    check_children(module, {*pieces, "x_k", "mix_key", "mix_receptance", "receptance"})
    return Split(pieces, memory=memory)
