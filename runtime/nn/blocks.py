"""Linear layers, tables and stacks of experts whose weights are GGUF's blocks, as they lie in the file.

They take the places of `mlx.nn.Linear`, `mlx.nn.Embedding` and `runtime.nn.feed_forward.experts.SwitchLinear`
where kernels of our own multiply by blocks; nothing else knows their layout but `runtime.blocks`.
"""

import mlx.core as mx

from runtime.blocks.types import BlockType
from runtime.nn.module import Module
from runtime.nn.operations import ops


class _Blocks(Module):
    """weight: uint8 [..., out, bytes of a row]. bias: [..., out]."""

    def __init__(self, blocks: BlockType, weight: mx.array, bias: mx.array | None = None) -> None:
        super().__init__()
        self.blocks = blocks
        self.weight = weight
        if bias is not None:
            self.bias = bias
        self.freeze()


class BlockLinear(_Blocks):
    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.linear(self, x)


class BlockEmbedding(_Blocks):
    def __call__(self, ids: mx.array) -> mx.array:
        return ops.table.embed(self, ids)

    def as_linear(self, x: mx.array) -> mx.array:
        return ops.table.linear(self, x)


class BlockSwitchLinear(_Blocks):
    def __call__(self, x: mx.array, chosen: mx.array, *, ordered: bool = False) -> mx.array:
        return ops.table.gather(self, x, chosen, ordered)
