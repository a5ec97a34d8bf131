"""Linear layers with activations, which a text's pooled vector passes through: sentence-transformers' Dense.

They compute in float32, whatever the network computes in, and a vector is the same bits in any company.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import mlx.core as mx
import mlx.nn as nn

from runtime.nn.activation import gelu, relu, softcap
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

Activation = Literal["identity", "tanh", "relu", "gelu"]


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Of one layer."""

    weight: "np.ndarray"
    """float32 [out, in]."""
    bias: "np.ndarray | None"
    """float32 [out]."""
    activation: Activation


def _tanh(x: mx.array) -> mx.array:
    return softcap(x, 1.0)


_FUNCTIONS: "Mapping[Activation, Callable[[mx.array], mx.array]]" = {
    "identity": lambda x: x,
    "tanh": _tanh,
    "relu": relu,
    "gelu": gelu,
}


class Dense(Module):
    """float32 [B, in] -> [B, out]: activation(x Wᵀ + b). Its arrays belong to the thread that makes it."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        outputs, inputs = weights.weight.shape
        self.linear = nn.Linear(inputs, outputs, bias=weights.bias is not None)
        self.linear.weight = mx.array(weights.weight)
        if weights.bias is not None:
            self.linear.bias = mx.array(weights.bias)
        self._activation = _FUNCTIONS[weights.activation]
        mx.eval(self.parameters())

    def __call__(self, x: mx.array) -> mx.array:
        return self._activation(linear(self.linear, x[:, None], None)[:, 0])
