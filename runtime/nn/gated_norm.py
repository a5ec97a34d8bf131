"""RMS norms with a gate, as recurrent layers end with. D channels in `groups` equal parts, each normed on
its own.

Peers norm over all D when a checkpoint has several groups, and are silently wrong.
"""

from collections.abc import Callable
from typing import Literal

import mlx.core as mx

from runtime.nn.activation import silu
from runtime.nn.module import Module
from runtime.nn.norm import rms

Order = Literal["gate first", "norm first"]


class GatedRMSNorm(Module):
    """weight * rms(x * open(gate)) ("gate first", Mamba-2), or weight * rms(x) * open(gate) ("norm first").

    open is silu unless told otherwise.
    """

    def __init__(
        self,
        size: int,
        eps: float,
        *,
        groups: int = 1,
        order: Order = "gate first",
        activation: Callable[[mx.array], mx.array] = silu,
    ) -> None:
        super().__init__()
        self.weight = mx.ones((size,))
        self._eps = eps
        self._groups = groups
        self._order: Order = order
        self._open = activation

    def __call__(self, x: mx.array, gate: mx.array) -> mx.array:
        """x, gate [..., D] -> [..., D] in the dtype of the gate, computed in float32."""
        opened = self._open(gate.astype(mx.float32))
        x = x.astype(mx.float32)
        if self._order == "gate first":
            return (grouped_rms(x * opened, self._eps, self._groups) * self.weight).astype(gate.dtype)
        return (grouped_rms(x, self._eps, self._groups) * self.weight * opened).astype(gate.dtype)


def grouped_rms(x: mx.array, eps: float, groups: int) -> mx.array:
    """x over its root mean square within each of the `groups` parts of the last axis."""
    if groups == 1:
        return rms(x, eps)
    parts = x.reshape(*x.shape[:-1], groups, -1)
    return rms(parts, eps).reshape(x.shape)
