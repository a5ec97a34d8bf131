"""How the ranks that share a stage split experts that cannot be cut, as what each answers is normed by itself
(Muse Spark): each rank has some of them whole, and answers for those.

Who computes how much then depends on whom a token asks, which is so of no other mixture.
"""

from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.errors import CannotCut
from runtime.nn.feed_forward.experts import STACKS
from runtime.ranks.pieces import Piece, Shard, inputs_of
from runtime.ranks.splits import Split, inputs


def split_asked(module: Any, _memory: LayerSpec | None, shard: Shard) -> Split:
    """Of a mixture that says what it `asks_whole`, and by `of_experts` what it is with some of these. The
    matrix that closes it is on every rank, and reads what this rank's experts answer: products add up.
    """
    name, close = module.asks_whole
    experts = module[name]
    count = vars(experts)["_experts"]
    if count % shard.count:
        raise CannotCut(f"{count} experts are not a multiple of {shard.count}")
    own = shard.index * count // shard.count, (shard.index + 1) * count // shard.count
    stacks = [path for path, child in experts.items() if type(child) in STACKS]
    pieces = {f"{name}.{path}": Piece("each", (own,), count) for path in stacks}
    pieces[close] = inputs(module[close], shard, (0, inputs_of(module[close])))
    return Split(pieces, {f"{name}._experts": own[1] - own[0], **module.of_experts(*own)})
