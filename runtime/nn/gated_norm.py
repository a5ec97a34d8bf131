"""RMS norms with a gate, as recurrent layers end with. D channels in `groups` equal parts, each normed on
its own.

Peers norm over all D when a checkpoint has several groups, and are silently wrong.
"""

from typing import Literal

import mlx.core as mx

from runtime.nn.module import Module
from runtime.nn.operations import ops

Order = Literal["gate first", "norm first"]


class GatedRMSNorm(Module):
    """weight * rms(x * open(gate)) ("gate first", Mamba-2), or weight * rms(x) * open(gate) ("norm first").

    activation: what opens the gate. x of several times D channels are heads that share the weight.
    """

    def __init__(
        self,
        size: int,
        eps: float,
        *,
        groups: int = 1,
        order: Order = "gate first",
        activation: Literal["silu", "sigmoid"] = "silu",
    ) -> None:
        super().__init__()
        self.weight = mx.ones((size,))
        self.eps = eps
        self.groups = groups
        self.gate_first = order == "gate first"
        self.activation = activation

    def __call__(self, x: mx.array, gate: mx.array) -> mx.array:
        """x, gate [..., D] -> [..., D] in the dtype of the gate, computed in float32."""
        return ops.table.gated_norm(self, x, gate)
