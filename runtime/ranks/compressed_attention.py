"""How the ranks that share a stage split attention whose past is compressed (DeepSeek V4): by groups of
heads, of which each makes numbers of low rank of what it sees.

The one key of all heads, the vectors that tokens were made into, and what ranks these are on every rank, and
so is all that is remembered.
"""

from dataclasses import replace

from runtime.cache.layout import LayerSpec
from runtime.nn.attention.compressed import CompressedAttention
from runtime.ranks.pieces import Piece, Shard, scaled
from runtime.ranks.splits import Split, check_children, inputs, outputs


def split_compressed(module: CompressedAttention, memory: LayerSpec | None, shard: Shard) -> Split:
    shape = vars(module)["_shape"]
    groups = shard.heads(shape.out_groups)
    (heads,) = scaled([groups], shape.heads // shape.out_groups)
    pieces = {
        "q_b_proj": outputs(module.q_b_proj, *scaled([heads], shape.head_dim)),
        "o_a_proj": Piece("stack", (groups,), shape.out_groups),
        "o_b_proj": inputs(module.o_b_proj, shard, *scaled([groups], shape.out_rank)),
        "sinks": Piece("stack", (heads,), shape.heads),
    }
    check_children(module, {*pieces, "q_a_proj", "q_a_norm", "kv_proj", "kv_norm", "compressor"})
    here = replace(shape, heads=heads[1] - heads[0], out_groups=groups[1] - groups[0])
    return Split(pieces, {"_shape": here}, memory)
