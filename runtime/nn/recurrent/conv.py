"""Short causal convolutions as modules: what recurrent layers put before their scan (`causal_conv`).

B rows, L tokens, C channels, k taps. The state of a row is its last k-1 inputs [k-1, C], zero before the
first token.
"""

import mlx.core as mx

from runtime.cache.protocol import ScanningCache
from runtime.nn.module import Module
from runtime.nn.operations import ops
from runtime.step import Step


class CausalConv(Module):
    """The parameters, named and shaped as MLX's own Conv1d: weight [C, k, 1], bias [C]."""

    def __init__(self, channels: int, taps: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = mx.zeros((channels, taps, 1))
        if bias:
            self.bias = mx.zeros((channels,))

    def __call__(
        self, x: mx.array, before: mx.array, counts: mx.array | None, *, silu: bool = False
    ) -> tuple[mx.array, mx.array]:
        """x [B, L, C], before [B, k-1, C] -> outputs [B, L, C], through silu or not, and the state after
        each row's last real token.
        """
        return ops.table.conv(self, x, before, counts, silu)

    def ahead(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        """What it makes of x through silu, from the state `conv` that a scan has, which it leaves as it is:
        of what several processes sum in front of that scan. The scan itself may be run again for some of its
        tokens, and nobody sums twice.
        """

        def convolved(
            states: dict[str, mx.array], x: mx.array, *, counts: mx.array | None
        ) -> tuple[mx.array, dict[str, mx.array]]:
            return self(x, states["conv"], counts, silu=True)[0], states

        return cache.scan(step, convolved, x)

    def gated(self, x: mx.array, before: mx.array, counts: mx.array | None) -> tuple[mx.array, mx.array]:
        """(before | after | x) [B, L, 3 C] -> after * conv(before * x), [B, L, C]."""
        return ops.table.gated_conv(self, x, before, counts)


def with_filters(weights: dict[str, mx.array], ending: str = "conv1d.weight") -> dict[str, mx.array]:
    """The same tensors, depthwise filters as MLX has them: [C, k, 1]. Checkpoints store [C, 1, k], as PyTorch
    does, or what MLX has written. ending: of their names.
    """
    return {name: _turned(array) if name.endswith(ending) else array for name, array in weights.items()}


def _turned(filters: mx.array) -> mx.array:
    return filters if filters.ndim != 3 or filters.shape[2] == 1 else filters.swapaxes(1, 2)
