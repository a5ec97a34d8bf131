"""The recurrent block of Griffin and RecurrentGemma: a convolution and a real-gated linear recurrent unit.

Per channel, with gates r and i in (0, 1) from the token itself,

    log a = -8 r softplus(p);    h <- a h + sqrt(1 - a^2) i x

and the very first token enters with weight one instead of the root. Source: Griffin (arXiv 2402.19427),
section 2.4.
"""

from collections.abc import Sequence
from functools import partial

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Recurrent, State
from runtime.cache.protocol import ScanningCache
from runtime.nn.activation import NAMES, gated
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.operations import ops
from runtime.nn.recurrent.conv import CausalConv
from runtime.nn.recurrent.parts import recurrent_parts
from runtime.nn.residual.sublayer import projections
from runtime.parts.recurrent import RecurrentParts
from runtime.step import Step


def rg_lru_memory(width: int, taps: int) -> Recurrent:
    return Recurrent({"conv": State((taps - 1, width)), "state": State((width,), "float32")})


class Gates(Module):
    """Block-diagonal gates, one block per head; named as the checkpoint names them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        block = width // heads
        self.recurrent_param = mx.zeros((width,))
        self.input_gate_weight = mx.zeros((heads, block, block))
        self.input_gate_bias = mx.zeros((heads, block))
        self.recurrent_gate_weight = mx.zeros((heads, block, block))
        self.recurrent_gate_bias = mx.zeros((heads, block))


class RecurrentBlock(Module):
    """[B, L, D] -> [B, L, D] over `width` channels, gated by a second projection."""

    def __init__(self, hidden: int, width: int, heads: int, taps: int, activation: str) -> None:
        super().__init__()
        self.linear_y = nn.Linear(hidden, width)
        self.linear_x = nn.Linear(hidden, width)
        self.linear_out = nn.Linear(width, hidden)
        self.conv_1d = CausalConv(width, taps, bias=True)
        self.rg_lru = Gates(width, heads)
        self._activation = ACTIVATIONS[activation]

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        mixed, gate = projections((self.linear_x, self.linear_y), x, step)
        seen = cache.scan(step, partial(self._scan, step), mixed)
        return linear(self.linear_out, gated(self._activation, gate, seen.astype(x.dtype)), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> RecurrentParts | None:
        """See `sublayer.added`."""
        name = NAMES.get(self._activation)
        if name is None or type(self.rg_lru) is not Gates:
            return None
        return recurrent_parts(
            RecurrentParts(
                norm=norm,
                opening=(self.linear_x, self.linear_y),
                conv=self.conv_1d,
                kind="rg_lru",
                rule=self.rg_lru,
                sizes=None,
                gated_norm=None,
                close=self.linear_out,
                after=after,
                scan=self._scan,
                scanned=_scanned,
                activation=name,
            )
        )

    def _scan(
        self, step: Step, states: dict[str, mx.array], x: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """x [B, L, C] of C channels, of the step's first tokens -> h float32 [B, L, C]."""
        x, conv = self.conv_1d(x, states["conv"], counts)
        positions = step.positions[:, : x.shape[1]]
        hidden, state = ops.table.rg_lru(self.rg_lru, x, positions, states["state"], counts)
        return hidden, {"conv": conv, "state": state}


def _scanned(products: Sequence[mx.array]) -> Sequence[mx.array]:
    """All but the gate."""
    return products[:1]
