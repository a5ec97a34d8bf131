"""Which weights may stay as they are stored: the matrices that nothing reads but products of the table.

Kernels of our own multiply packed and 16-bit matrices beside float32 activations. Whatever a family reads by
itself (filters of convolutions, weights of norms, routers, a table of biases) is computed by MLX, which
emulates 16-bit arithmetic on a processor, slowly: that becomes float32.
"""

from collections.abc import Callable
from typing import Any

import mlx.nn as nn

from runtime.cpu.native.products import MODES
from runtime.nn.attention.mla import HeadLinear, QuantizedHeadLinear
from runtime.nn.blocks import BlockEmbedding, BlockLinear, BlockSwitchLinear
from runtime.nn.feed_forward.experts import QuantizedSwitchLinear, SwitchLinear
from runtime.nn.operations import ops

_READ_BY: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Linear: ("linear", "embed"),  # the kernels that look up floats came with those that multiply them
    nn.QuantizedLinear: ("linear",),
    nn.Embedding: ("linear", "embed"),
    nn.QuantizedEmbedding: ("linear",),
    SwitchLinear: ("gather",),
    QuantizedSwitchLinear: ("gather",),
    HeadLinear: ("by_heads",),
    QuantizedHeadLinear: ("by_heads",),
}
"""The operations that read each kind."""


_OF_BLOCKS: dict[type[nn.Module], Callable[..., nn.Module]] = {
    nn.Linear: BlockLinear,
    nn.Embedding: BlockEmbedding,
    SwitchLinear: BlockSwitchLinear,
}


def of_blocks(module: nn.Module) -> Callable[..., nn.Module] | None:
    """What makes the module of GGUF's blocks that takes this one's place; None: nothing."""
    return _OF_BLOCKS.get(type(module)) if read_as_stored(module) else None


def read_as_stored(module: Any) -> bool:
    """Is this module's matrix read by kernels of our own alone?"""
    names = _READ_BY.get(type(module))
    if names is None or not ops.by_kernels(*names):
        return False
    return "scales" not in module or module.mode in MODES
