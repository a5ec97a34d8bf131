"""What is done to a network once its weights are in place.

Tables are told in which type to answer: their rows may be stored in another one than that of the
activations, and MLX would have it that those of a microscaled one are bfloat16. And networks of foreign
classes, which call their children themselves, get twins of MLX's own layers that share all arrays and compute
by the table of operations.
"""

from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cpu.native.tables import ANSWERS_IN
from runtime.nn import ops
from runtime.nn.blocks import BlockEmbedding
from runtime.nn.linear import Takes
from runtime.nn.module import Module


def make_ready(network: nn.Module, dtype: mx.Dtype = mx.float32) -> None:
    """dtype: of activations."""
    modules = network.modules()
    for module in modules:
        if isinstance(module, nn.Embedding | nn.QuantizedEmbedding | BlockEmbedding):
            vars(module)[ANSWERS_IN] = dtype
    twins: dict[int, nn.Module] = {}
    for module in modules:
        if not isinstance(module, Module):
            _replace_children(module, twins)


class Linear(nn.Linear):
    takes_pairs: ClassVar[Takes] = "matrix"

    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.linear(self, x)


class Embedding(nn.Embedding):
    takes_pairs: ClassVar[Takes] = "table"

    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.embed(self, x)

    def as_linear(self, x: mx.array) -> mx.array:
        return ops.table.linear(self, x)


class QuantizedLinear(nn.QuantizedLinear):
    takes_pairs: ClassVar[Takes] = "matrix"

    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.linear(self, x)


class QuantizedEmbedding(nn.QuantizedEmbedding):
    takes_pairs: ClassVar[Takes] = "table"

    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.embed(self, x)

    def as_linear(self, x: mx.array) -> mx.array:
        return ops.table.linear(self, x)


class RMSNorm(nn.RMSNorm):
    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.rms_norm(self, x)


_TWINS: dict[type, type[nn.Module]] = {
    nn.Linear: Linear,
    nn.QuantizedLinear: QuantizedLinear,
    nn.Embedding: Embedding,
    nn.QuantizedEmbedding: QuantizedEmbedding,
    nn.RMSNorm: RMSNorm,
}


def _replace_children(holder: Any, twins: dict[int, nn.Module]) -> None:
    """In a module, or in lists and dicts that it holds."""
    for place, value in list(enumerate(holder) if isinstance(holder, list) else holder.items()):
        if type(value) in _TWINS:
            if id(value) not in twins:  # one layer may stand in two places
                twins[id(value)] = _twin(value)
            holder[place] = twins[id(value)]
        elif isinstance(value, list | dict) and not isinstance(value, nn.Module):
            _replace_children(value, twins)


def _twin(module: nn.Module) -> nn.Module:
    kind = _TWINS[type(module)]
    twin = kind.__new__(kind)
    vars(twin).update(vars(module))
    for name, value in module.items():
        twin[name] = value
    return twin
