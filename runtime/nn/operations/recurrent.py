"""What recurrent layers compute between their projections, from a column's own activations and norms.

The functions are those of `Operations`; each takes what projections gave, does what is left to do
(activations, unit keys, step sizes) and folds. A kernel of our own does the same in one node.

B rows, L tokens, H heads. counts int32 [B]: real tokens per row, None where all are. All return their
answers and the state after each row's last real token.
"""

from collections.abc import Callable
from typing import Any, Protocol

import mlx.core as mx

from runtime.cache.snapshot import detached
from runtime.nn.scans.causal_conv import causal_conv
from runtime.nn.scans.channel_delta import channel_delta
from runtime.nn.scans.chunks import zero_padding
from runtime.nn.scans.gated_delta import gated_delta
from runtime.nn.scans.linear_scan import linear_scan
from runtime.nn.scans.selective_scan import selective_scan
from runtime.nn.scans.ssd import ssd
from runtime.records import dataclass

Unary = Callable[[mx.array], mx.array]
Counts = mx.array | None
Folded = tuple[mx.array, mx.array]

UNIT_EPS = 1e-6
"""Added to the square of a query's or key's length before it is divided by."""


class DeltaSizes(Protocol):
    """Of the delta rule's heads."""

    @property
    def key_heads(self) -> int: ...
    @property
    def value_heads(self) -> int: ...
    @property
    def key_dim(self) -> int: ...
    @property
    def value_dim(self) -> int: ...
    @property
    def strength(self) -> float:
        """What a token writes at most."""
        ...


class SsdSizes(Protocol):
    """Of Mamba-2's heads."""

    @property
    def heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def state(self) -> int: ...
    @property
    def steps(self) -> tuple[float, float]:
        """Bounds of step sizes."""
        ...


@dataclass(frozen=True, slots=True)
class Scans:
    """The operations of one column, from its own parts."""

    silu: Unary
    softplus: Unary
    rms: Callable[[mx.array, float], mx.array]

    def table(self) -> dict[str, Any]:
        """By their names in `Operations`."""
        names = ("conv", "gated_conv", "delta", "selective_scan", "ssd", "rg_lru", "gated_norm")
        return {name: getattr(self, name) for name in names}

    def conv(self, module: Any, x: mx.array, before: mx.array, counts: Counts, silu: bool) -> Folded:
        y, after = causal_conv(x, before, module.weight, module.get("bias"), counts=counts)
        return self.silu(y) if silu else y, _own(after, x)

    def gated_conv(self, module: Any, x: mx.array, before: mx.array, counts: Counts) -> Folded:
        gate_in, gate_out, x = mx.split(x, 3, axis=-1)
        y, after = self.conv(module, gate_in * x, before, counts, False)
        return gate_out * y, after

    def delta(
        self,
        module: Any,
        sizes: DeltaSizes,
        mixed: mx.array,
        decay: mx.array,
        strength: mx.array,
        state: mx.array,
        counts: Counts,
    ) -> Folded:
        lead, keys = mixed.shape[:2], sizes.key_heads * sizes.key_dim
        q, k, v = mx.split(mixed, (keys, 2 * keys), axis=-1)
        queries, keys = (part.reshape(*lead, sizes.key_heads, sizes.key_dim) for part in (q, k))
        values = v.reshape(*lead, sizes.value_heads, sizes.value_dim)
        rates = -mx.exp(module.A_log.astype(mx.float32).flatten())
        steps = self.softplus(decay.astype(mx.float32) + module.dt_bias.astype(mx.float32))
        by_channel = decay.shape[-1] != sizes.value_heads
        if by_channel:
            steps, rates = steps.reshape(*lead, sizes.value_heads, sizes.key_dim), rates[:, None]
        y, state = (channel_delta if by_channel else gated_delta)(
            self._unit(queries) * sizes.key_dim**-0.5,
            self._unit(keys),
            values,
            rates * steps,
            mx.sigmoid(strength.astype(mx.float32)) * sizes.strength,
            state,
            counts=counts,
        )
        return y.flatten(2), state

    def _unit(self, x: mx.array) -> mx.array:
        """x / sqrt(sum(x^2) + UNIT_EPS) in float32, by way of the norm."""
        size = x.shape[-1]
        return self.rms(x.astype(mx.float32), UNIT_EPS / size) * size**-0.5

    def selective_scan(
        self,
        module: Any,
        x: mx.array,
        steps: mx.array,
        inputs: mx.array,
        outputs: mx.array,
        state: mx.array,
        counts: Counts,
    ) -> Folded:
        rates = -mx.exp(module.A_log.astype(mx.float32)).T
        steps = self.softplus(steps.astype(mx.float32))
        y, state = selective_scan(x, steps, rates, inputs, outputs, state, counts=counts)
        return y + x * module.D.astype(mx.float32), _own(state, x)

    def ssd(
        self,
        module: Any,
        sizes: SsdSizes,
        mixed: mx.array,
        steps: mx.array,
        state: mx.array,
        counts: Counts,
    ) -> Folded:
        lead, inner = mixed.shape[:2], sizes.heads * sizes.head_dim
        x, inputs, outputs = mx.split(mixed, (inner, inner + sizes.groups * sizes.state), axis=-1)
        x = x.reshape(*lead, sizes.heads, sizes.head_dim).astype(mx.float32)
        inputs, outputs = (part.reshape(*lead, sizes.groups, sizes.state) for part in (inputs, outputs))
        steps = self.softplus(steps.astype(mx.float32) + module.dt_bias.astype(mx.float32))
        if sizes.steps != (0.0, float("inf")):
            steps = mx.clip(steps, *sizes.steps)
        rates = -mx.exp(module.A_log.astype(mx.float32))
        y, state = ssd(x, steps, rates, inputs, outputs, state, counts=counts)
        return (y + x * module.D.astype(mx.float32)[:, None]).flatten(2), state

    def rg_lru(
        self, module: Any, x: mx.array, positions: mx.array, state: mx.array, counts: Counts
    ) -> Folded:
        x = x.astype(mx.float32)
        heads = x.reshape(*x.shape[:2], *module.input_gate_bias.shape)[..., None, :]

        def gate(weight: mx.array, bias: mx.array) -> mx.array:
            return mx.sigmoid((heads @ weight.astype(mx.float32)).squeeze(-2) + bias).reshape(x.shape)

        opened = gate(module.input_gate_weight, module.input_gate_bias)
        kept = gate(module.recurrent_gate_weight, module.recurrent_gate_bias)
        rate = -8.0 * kept * self.softplus(module.recurrent_param.astype(mx.float32))
        first = (positions == 0)[..., None]
        weight = mx.where(first, 1.0, mx.sqrt(1 - mx.exp(2 * rate)))
        inputs = zero_padding(x * opened * weight, counts)
        hidden = linear_scan(mx.exp(zero_padding(rate, counts)), inputs, state)
        return hidden, _own(hidden[:, -1], x)

    def gated_norm(self, module: Any, x: mx.array, gate: mx.array) -> mx.array:
        wide = gate.astype(mx.float32)
        opened = self.silu(wide) if module.activation == "silu" else mx.sigmoid(wide)
        weight = module.weight
        size = weight.size // module.groups
        x = x.astype(mx.float32)
        if module.gate_first:
            x = x * opened
        normed = self.rms(x.reshape(*x.shape[:-1], -1, size), module.eps)
        y = (normed.reshape(*x.shape[:-1], -1, weight.size) * weight).reshape(x.shape)
        return (y if module.gate_first else y * opened).astype(gate.dtype)


def _own(state: mx.array, x: mx.array) -> mx.array:
    """A state in memory of its own, where it is a view of what all tokens of x came to."""
    return state if x.shape[1] == 1 else detached(state)
