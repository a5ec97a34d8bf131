"""The mixer of Kimi Linear (KDA): a convolution, the delta rule with a decay per channel, a norm under a
sigmoid gate.

Decay and gate come through a bottleneck of one head's size. In Ling 3 both have a whole matrix, and logs of
decays have a floor: lowest * sigmoid(exp(A_log) (x + dt_bias)) for -exp(A_log) softplus(x + dt_bias).
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Recurrent, State
from runtime.cache.protocol import ScanningCache
from runtime.nn.gated_norm import GatedRMSNorm
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.operations import ops
from runtime.nn.recurrent.conv import CausalConv
from runtime.nn.recurrent.parts import recurrent_parts
from runtime.nn.residual.sublayer import projections
from runtime.parts.recurrent import RecurrentParts
from runtime.records import dataclass
from runtime.step import Step

LEAST = 1e-30
"""Below it a step forgets nothing, and a logarithm of it would be none."""


@dataclass(frozen=True, slots=True)
class KimiDeltaSpec:
    """The heads of a KDA mixer."""

    heads: int
    size: int
    """Elements of a query, key or value, per head."""
    taps: int
    """Of the convolution: tokens that it sees."""
    eps: float
    """Of the norm."""

    strength: float = 1.0
    """What a token writes at most."""
    lowest: float | None = None
    """The log of a decay is above it; None: there is no bound."""

    @property
    def key_heads(self) -> int:
        return self.heads

    @property
    def value_heads(self) -> int:
        return self.heads

    @property
    def key_dim(self) -> int:
        return self.size

    @property
    def value_dim(self) -> int:
        return self.size

    @property
    def inner(self) -> int:
        return self.heads * self.size

    @property
    def memory(self) -> Recurrent:
        return Recurrent(
            {
                "conv": State((self.taps - 1, 3 * self.inner)),
                "state": State((self.heads, self.size, self.size), "float32"),
            }
        )


class KimiMixer(Module):
    """What both have: [B, L, D] -> [B, L, D]."""

    def __init__(self, hidden: int, spec: KimiDeltaSpec) -> None:
        super().__init__()
        self.qkv_proj = nn.Linear(hidden, 3 * spec.inner, bias=False)
        self.conv1d = CausalConv(3 * spec.inner, spec.taps, bias=False)
        self.dt_bias = mx.zeros((spec.inner,))
        self.A_log = mx.zeros((1, 1, spec.heads, 1))
        self.b_proj = nn.Linear(hidden, spec.heads, bias=False)
        self.o_norm = GatedRMSNorm(spec.size, spec.eps, order="norm first", activation="sigmoid")
        self.o_proj = nn.Linear(spec.inner, hidden, bias=False)
        self._spec = spec

    def _scan(
        self,
        states: dict[str, mx.array],
        mixed: mx.array,
        decay: mx.array,
        strength: mx.array,
        *,
        counts: mx.array | None,
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """mixed [B, L, 3 H D], decay [B, L, H D], strength [B, L, H] before their activations -> [B, L,
        H D].
        """
        mixed, conv = self.conv1d(mixed, states["conv"], counts, silu=True)
        rates: Any = self
        if self._spec.lowest is not None:
            rates, decay = _Ones(self._spec), self._bounded(self._spec.lowest, decay)
        y, state = ops.table.delta(rates, self._spec, mixed, decay, strength, states["state"], counts)
        return y, {"conv": conv, "state": state}

    def _bounded(self, lowest: float, decay: mx.array) -> mx.array:
        """What the rule's own softplus makes the log of the decay of, but for its sign, [B, L, H D]."""
        by_head = (decay.astype(mx.float32) + self.dt_bias).reshape(*decay.shape[:2], -1, self._spec.size)
        steps = -lowest * mx.sigmoid(mx.exp(self.A_log.astype(mx.float32)) * by_head)
        steps = mx.maximum(steps, LEAST).flatten(2)
        return steps + mx.log(-mx.expm1(-steps))


class KimiDelta(KimiMixer):
    """[B, L, D] -> [B, L, D]: convolution, the delta rule with a decay per channel, a norm under a
    sigmoid gate.
    """

    def __init__(self, hidden: int, spec: KimiDeltaSpec) -> None:
        super().__init__(hidden, spec)
        self.f_a_proj = nn.Linear(hidden, spec.size, bias=False)
        self.f_b_proj = nn.Linear(spec.size, spec.inner, bias=False)
        self.g_a_proj = nn.Linear(hidden, spec.size, bias=False)
        self.g_b_proj = nn.Linear(spec.size, spec.inner, bias=False)

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        mixed, gate, decay, strength = projections(self._opening(), x, step)
        decay = linear(self.f_b_proj, decay, step)
        y = cache.scan(step, self._scan, mixed, decay, strength)
        gate = linear(self.g_b_proj, gate, step)
        return linear(self.o_proj, self.o_norm(y, gate), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> RecurrentParts | None:
        """See `sublayer.added`. Kernels know no floor."""
        if self._spec.lowest is not None:
            return None
        return recurrent_parts(
            RecurrentParts(
                norm=norm,
                opening=self._opening(),
                conv=self.conv1d,
                kind="delta",
                rule=self,
                sizes=self._spec,
                gated_norm=self.o_norm,
                close=self.o_proj,
                after=after,
                scan=self._scan,
                scanned=_scanned,
                widen=(None, self.g_b_proj, self.f_b_proj, None),
            )
        )

    def _opening(self) -> tuple[nn.Module, ...]:
        return self.qkv_proj, self.g_a_proj, self.f_a_proj, self.b_proj


class LingDelta(KimiMixer):
    """Ling 3's."""

    def __init__(self, hidden: int, spec: KimiDeltaSpec) -> None:
        super().__init__(hidden, spec)
        self.f_proj = nn.Linear(hidden, spec.inner, bias=False)
        self.g_proj = nn.Linear(hidden, spec.inner, bias=False)

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        opening = self.qkv_proj, self.g_proj, self.f_proj, self.b_proj
        mixed, gate, decay, strength = projections(opening, x, step)
        y = cache.scan(step, self._scan, mixed, decay, strength)
        return linear(self.o_proj, self.o_norm(y, gate), step)


class WideDelta(KimiMixer):
    """Kimi K3's: the gate alone has a whole matrix."""

    def __init__(self, hidden: int, spec: KimiDeltaSpec) -> None:
        super().__init__(hidden, spec)
        self.f_a_proj = nn.Linear(hidden, spec.size, bias=False)
        self.f_b_proj = nn.Linear(spec.size, spec.inner, bias=False)
        self.g_proj = nn.Linear(hidden, spec.inner, bias=False)

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        opening = self.qkv_proj, self.g_proj, self.f_a_proj, self.b_proj
        mixed, gate, decay, strength = projections(opening, x, step)
        y = cache.scan(step, self._scan, mixed, linear(self.f_b_proj, decay, step), strength)
        return linear(self.o_proj, self.o_norm(y, gate), step)


class _Ones:
    """Rates of 1 and no biases, for a rule that is given what they made already."""

    def __init__(self, spec: KimiDeltaSpec) -> None:
        self.A_log, self.dt_bias = mx.zeros((spec.heads,)), mx.zeros((spec.inner,))


def _scanned(products: Sequence[mx.array]) -> Sequence[mx.array]:
    """All but the gate."""
    mixed, _, decay, strength = products
    return mixed, decay, strength
