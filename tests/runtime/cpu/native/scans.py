"""Every fold that kernels compute, as a case: a module, a step's inputs, the state before it, and the same in
numpy's float64, token by token.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from runtime.nn.operations.signatures import Operations
from runtime.nn.recurrent.conv import CausalConv
from runtime.nn.recurrent.delta_net import DeltaSpec, GatedDeltaNet
from runtime.nn.recurrent.kimi_delta import KimiDelta, KimiDeltaSpec
from runtime.nn.recurrent.mamba1 import Mamba1, Mamba1Spec
from runtime.nn.recurrent.mamba2 import Mamba2, Mamba2Spec
from runtime.nn.recurrent.rg_lru import Gates

Wide = np.ndarray[Any, np.dtype[np.float64]]
Truth = Callable[[tuple[Wide, ...], Wide], tuple[Wide, Wide]]


@dataclass(frozen=True)
class Case:
    """One fold at one shape."""

    run: Callable[[Operations, tuple[mx.array, ...], mx.array, mx.array | None], tuple[mx.array, mx.array]]
    """(column, a step's inputs [B, L, ...], state, counts) -> answers, state."""
    widths: tuple[int, ...]
    """The last axis of each input."""
    state: tuple[int, ...]
    truth: Truth
    """(inputs [L, ...], state) of one row -> the same, in float64."""
    bound: float = 1e-5
    """Of the error after 1,000 tokens, as a part of the largest number."""

    def inputs(self, rows: int, width: int, seed: int = 0) -> tuple[mx.array, ...]:
        keys = mx.random.split(mx.random.key(seed), len(self.widths))
        return tuple(
            mx.random.normal((rows, width, size), key=key)
            for size, key in zip(self.widths, keys, strict=True)
        )

    def states(self, rows: int, seed: int = 100) -> mx.array:
        return mx.random.normal((rows, *self.state), key=mx.random.key(seed))


def _filled(module: Any, seed: int = 7) -> Any:
    """The same module with random numbers for parameters that folds read."""
    for i, (name, array) in enumerate(sorted(module.items())):
        if isinstance(array, mx.array):
            module[name] = mx.random.normal(array.shape, key=mx.random.key(seed + i)) * 0.5
    return module


def _wide(x: mx.array) -> Wide:
    return np.array(x).astype(np.float64)


def _sigmoid(x: Wide) -> Wide:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Wide) -> Wide:
    return np.logaddexp(x, 0)


def conv(channels: int, taps: int, *, bias: bool, silu: bool) -> Case:
    module = _filled(CausalConv(channels, taps, bias=bias))
    filters = _wide(module.weight)[:, :, 0].T

    def truth(inputs: tuple[Wide, ...], state: Wide) -> tuple[Wide, Wide]:
        seen = np.concatenate([state, inputs[0]])
        y = np.stack([(seen[i : i + taps] * filters).sum(0) for i in range(len(inputs[0]))])
        y = y + _wide(module.bias) if bias else y
        return y * _sigmoid(y) if silu else y, seen[len(seen) - taps + 1 :]

    def run(
        column: Operations, inputs: tuple[mx.array, ...], state: mx.array, counts: mx.array | None
    ) -> Any:
        return column.conv(module, *inputs, state, counts, silu)

    return Case(run, (channels,), (taps - 1, channels), truth)


def gated_conv(channels: int, taps: int) -> Case:
    module = _filled(CausalConv(channels, taps, bias=True))
    inner = conv(channels, taps, bias=True, silu=False)

    def truth(inputs: tuple[Wide, ...], state: Wide) -> tuple[Wide, Wide]:
        before, after, x = np.split(inputs[0], 3, axis=-1)
        y, last = inner.truth((before * x,), state)
        return after * y, last

    def run(
        column: Operations, inputs: tuple[mx.array, ...], state: mx.array, counts: mx.array | None
    ) -> Any:
        return column.gated_conv(module, *inputs, state, counts)

    return Case(run, (3 * channels,), (taps - 1, channels), truth)


def _unit(x: Wide) -> Wide:
    return x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6)


def delta(key_heads: int, heads: int, key: int, value: int, *, by_channel: bool) -> Case:
    if by_channel:
        spec: Any = KimiDeltaSpec(heads, key, 4, 1e-5)
        module: Any = _filled(KimiDelta(8, spec))
    else:
        spec = DeltaSpec(key_heads, heads, key, value, 4, 1e-5, strength=2.0)
        module = _filled(GatedDeltaNet(8, spec))
    rates = np.exp(_wide(module.A_log)).reshape(heads, 1)
    bias = _wide(module.dt_bias).reshape(heads, -1)

    def truth(inputs: tuple[Wide, ...], state: Wide) -> tuple[Wide, Wide]:
        y: list[Wide] = []
        for mixed, decay, strength in zip(*inputs, strict=True):
            q, k, v = np.split(mixed, (key_heads * key, 2 * key_heads * key))
            q, k = (np.repeat(_unit(x.reshape(key_heads, key)), heads // key_heads, 0) for x in (q, k))
            kept = np.exp(-rates * _softplus(decay.reshape(heads, -1) + bias))
            state = kept[..., None] * state
            held = (state * k[..., None]).sum(1)
            wrong = spec.strength * _sigmoid(strength)[:, None] * (v.reshape(heads, value) - held)
            state = state + k[..., None] * wrong[:, None]
            y.append((state * (q * key**-0.5)[..., None]).sum(1).ravel())
        return np.stack(y), state

    def run(
        column: Operations, inputs: tuple[mx.array, ...], state: mx.array, counts: mx.array | None
    ) -> Any:
        return column.delta(module, spec, *inputs, state, counts)

    widths = (2 * key_heads * key + heads * value, heads * key if by_channel else heads, heads)
    return Case(run, widths, (heads, key, value), truth)


def selective_scan(channels: int, states: int) -> Case:
    module = _filled(Mamba1(Mamba1Spec(8, channels, states, 4, 2, 1e-5)))
    rates, skip = np.exp(_wide(module.A_log)).T, _wide(module.D)

    def truth(inputs: tuple[Wide, ...], state: Wide) -> tuple[Wide, Wide]:
        y: list[Wide] = []
        for x, raw, enters, leaves in zip(*inputs, strict=True):
            step = _softplus(raw)
            state = np.exp(-step * rates) * state + enters[:, None] * (step * x)
            y.append((state * leaves[:, None]).sum(0) + skip * x)
        return np.stack(y), state

    def run(
        column: Operations, inputs: tuple[mx.array, ...], state: mx.array, counts: mx.array | None
    ) -> Any:
        return column.selective_scan(module, *inputs, state, counts)

    return Case(run, (channels, channels, states, states), (states, channels), truth)


def ssd(heads: int, size: int, groups: int, states: int) -> Case:
    spec = Mamba2Spec(8, heads, size, groups, states, 4, 1e-5, steps=(0.01, 2.0))
    module = _filled(Mamba2(spec))
    rates, bias, skip = (_wide(module[name]) for name in ("A_log", "dt_bias", "D"))

    def truth(inputs: tuple[Wide, ...], state: Wide) -> tuple[Wide, Wide]:
        y: list[Wide] = []
        for mixed, raw in zip(*inputs, strict=True):
            x, enters, leaves = np.split(mixed, (heads * size, heads * size + groups * states))
            x = x.reshape(heads, 1, size)
            enters, leaves = (
                np.repeat(part.reshape(groups, states, 1), heads // groups, 0) for part in (enters, leaves)
            )
            step = np.clip(_softplus(raw + bias), 0.01, 2.0)
            state = np.exp(-step * np.exp(rates))[:, None, None] * state + enters * (step[:, None, None] * x)
            y.append(((state * leaves).sum(1) + skip[:, None] * x[:, 0]).ravel())
        return np.stack(y), state

    def run(
        column: Operations, inputs: tuple[mx.array, ...], state: mx.array, counts: mx.array | None
    ) -> Any:
        return column.ssd(module, spec, *inputs, state, counts)

    return Case(run, (heads * size + 2 * groups * states, heads), (heads, states, size), truth)


def rg_lru(heads: int, block: int) -> Case:
    module = _filled(Gates(heads * block, heads))
    enter, keep = _wide(module.input_gate_weight), _wide(module.recurrent_gate_weight)

    def truth(inputs: tuple[Wide, ...], state: Wide) -> tuple[Wide, Wide]:
        y: list[Wide] = []
        for x, _ in zip(*inputs, strict=True):
            blocks = x.reshape(heads, 1, block)
            entered = _sigmoid((blocks @ enter)[:, 0] + _wide(module.input_gate_bias)).ravel()
            kept = _sigmoid((blocks @ keep)[:, 0] + _wide(module.recurrent_gate_bias)).ravel()
            log = -8 * kept * _softplus(_wide(module.recurrent_param))
            state = np.exp(log) * state + np.sqrt(-np.expm1(2 * log)) * entered * x
            y.append(state)
        return np.stack(y), state

    def run(
        column: Operations, inputs: tuple[mx.array, ...], state: mx.array, counts: mx.array | None
    ) -> Any:
        x, positions = inputs  # normal numbers: a few become 0 as whole ones, so they are moved beyond
        return column.rg_lru(module, x, positions[..., 0].astype(mx.int32) + 9, state, counts)

    # 1 - a^2 is taken from an a^2 that is rounded to float32, as networks are trained with it.
    return Case(run, (heads * block, 1), (heads * block,), truth, bound=1e-4)


CASES: dict[str, Case] = {
    "conv": conv(48, 4, bias=True, silu=True),
    "conv, odd": conv(37, 3, bias=False, silu=False),
    "gated_conv": gated_conv(40, 3),
    "delta": delta(2, 4, 32, 80, by_channel=False),
    "delta, odd": delta(1, 3, 5, 6, by_channel=False),
    "delta by channel": delta(2, 2, 64, 64, by_channel=True),
    "delta by channel, odd": delta(3, 3, 7, 7, by_channel=True),
    "selective_scan": selective_scan(96, 16),
    "selective_scan, odd": selective_scan(19, 5),
    "ssd": ssd(4, 80, 2, 32),
    "ssd, odd": ssd(3, 13, 1, 7),
    "rg_lru": rg_lru(2, 96),
    "rg_lru, odd": rg_lru(3, 11),
}
