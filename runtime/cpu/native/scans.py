"""Layers that fold over tokens, by the kernels: float32 alone; whatever else is asked goes the other way.

What is made of a layer's parameters once and for all (rates, filters by tap) is kept beside the module with
the parameters that it was made of: one that is replaced is noticed.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

Folded = tuple[mx.array, mx.array]
_FLOAT = mx.float32
_KEPT = "_kept_for_scans"

MOST_TAPS = 64
MOST_KEYS = 2048
MOST_STATES = 256


def table(kernels: Any, otherwise: Any) -> dict[str, Callable[..., Any]]:
    """otherwise: the column that computes what kernels do not."""
    return {
        "conv": _conv(kernels, otherwise),
        "gated_conv": _gated_conv(kernels, otherwise),
        "delta": _delta(kernels, otherwise),
        "selective_scan": _selective_scan(kernels, otherwise),
        "ssd": _ssd(kernels, otherwise),
        "rg_lru": _rg_lru(kernels, otherwise),
        "gated_norm": _gated_norm(kernels, otherwise),
    }


def kept_of(module: Any, make: Callable[..., tuple[mx.array | None, ...]], *of: mx.array | None) -> Any:
    """make(*of), made when first asked and whenever one of them is another array."""
    kept = module.__dict__.get(_KEPT)
    if kept is not None:
        for now, then in zip(of, kept[0], strict=True):
            if now is not then:
                break
        else:
            return kept[1]
    made = make(*(None if array is None else array.astype(mx.float32) for array in of))
    mx.eval(*(array for array in made if array is not None))
    vars(module)[_KEPT] = (of, made)
    return made


def filters_of(weight: mx.array, bias: mx.array | None) -> tuple[mx.array | None, ...]:
    """Filters by tap, [k, C], of the weight [C, k, 1] of a convolution of C channels; and its bias [C]."""
    return mx.contiguous(weight[:, :, 0].T), bias


def _conv(kernels: Any, otherwise: Any) -> Callable[..., Folded]:
    node, other = kernels.conv, otherwise.conv

    def conv(module: Any, x: mx.array, before: mx.array, counts: mx.array | None, silu: bool) -> Folded:
        weight = module.weight
        if x.dtype != _FLOAT or before.dtype != _FLOAT or weight.shape[1] > MOST_TAPS:
            return other(module, x, before, counts, silu)
        filters, bias = kept_of(module, filters_of, weight, module.get("bias"))
        return node(x, None, None, before, filters, bias, counts, silu)

    return conv


def _gated_conv(kernels: Any, otherwise: Any) -> Callable[..., Folded]:
    node, other = kernels.conv, otherwise.gated_conv

    def gated_conv(module: Any, x: mx.array, before: mx.array, counts: mx.array | None) -> Folded:
        weight = module.weight
        if x.dtype != _FLOAT or before.dtype != _FLOAT or weight.shape[1] > MOST_TAPS:
            return other(module, x, before, counts)
        filters, bias = kept_of(module, filters_of, weight, module.get("bias"))
        gate_in, gate_out, x = mx.split(x, 3, axis=-1)
        return node(x, gate_in, gate_out, before, filters, bias, counts, False)

    return gated_conv


def rates_of(log: mx.array, *others: mx.array) -> tuple[mx.array, ...]:
    """Rates by their logarithms, and other parameters, one number each for a head or channel."""
    return mx.exp(log.flatten()), *(other.flatten() for other in others)


def _delta(kernels: Any, otherwise: Any) -> Callable[..., Folded]:
    node, other = kernels.delta, otherwise.delta

    def delta(
        module: Any,
        sizes: Any,
        mixed: mx.array,
        decay: mx.array,
        strength: mx.array,
        state: mx.array,
        counts: mx.array | None,
    ) -> Folded:
        if not mixed.dtype == decay.dtype == strength.dtype == _FLOAT or sizes.key_dim > MOST_KEYS:
            return other(module, sizes, mixed, decay, strength, state, counts)
        rates, bias = kept_of(module, rates_of, module.A_log, module.dt_bias)
        return node(mixed, decay, strength, rates, bias, state, counts, sizes.key_heads, sizes.strength)

    return delta


def rates_by_state(log: mx.array, skip: mx.array) -> tuple[mx.array, ...]:
    """Rates [N, C] by their logarithms [C, N], N for each channel; and what of the input skips the state,
    [C].
    """
    return mx.contiguous(mx.exp(log).T), skip


def _selective_scan(kernels: Any, otherwise: Any) -> Callable[..., Folded]:
    node, other = kernels.selective_scan, otherwise.selective_scan

    def selective_scan(
        module: Any,
        x: mx.array,
        steps: mx.array,
        inputs: mx.array,
        outputs: mx.array,
        state: mx.array,
        counts: mx.array | None,
    ) -> Folded:
        same = x.dtype == steps.dtype == inputs.dtype == outputs.dtype == _FLOAT
        if not same or state.shape[1] > MOST_STATES:
            return other(module, x, steps, inputs, outputs, state, counts)
        rates, skip = kept_of(module, rates_by_state, module.A_log, module.D)
        return node(x, steps, inputs, outputs, rates, skip, state, counts)

    return selective_scan


def _ssd(kernels: Any, otherwise: Any) -> Callable[..., Folded]:
    node, other = kernels.ssd, otherwise.ssd

    def ssd(
        module: Any, sizes: Any, mixed: mx.array, steps: mx.array, state: mx.array, counts: mx.array | None
    ) -> Folded:
        if not mixed.dtype == steps.dtype == _FLOAT:
            return other(module, sizes, mixed, steps, state, counts)
        rates, bias, skip = kept_of(module, rates_of, module.A_log, module.dt_bias, module.D)
        return node(mixed, steps, rates, bias, skip, state, counts, sizes.groups, sizes.steps)

    return ssd


def _gates(rates: mx.array, *others: mx.array) -> tuple[mx.array, ...]:
    return 8 * mx.logaddexp(rates, mx.array(0.0)), *others


def gates_of(module: Any) -> tuple[mx.array, ...]:
    """Rates, then matrix and bias of the gate of inputs and of that of what is kept."""
    return kept_of(
        module,
        _gates,
        module.recurrent_param,
        module.input_gate_weight,
        module.input_gate_bias,
        module.recurrent_gate_weight,
        module.recurrent_gate_bias,
    )


def _rg_lru(kernels: Any, otherwise: Any) -> Callable[..., Folded]:
    node, other = kernels.rg_lru, otherwise.rg_lru

    def rg_lru(
        module: Any, x: mx.array, positions: mx.array, state: mx.array, counts: mx.array | None
    ) -> Folded:
        if x.dtype != _FLOAT:
            return other(module, x, positions, state, counts)
        rates, *gates = gates_of(module)
        return node(x, *gates, rates, positions, state, counts)

    return rg_lru


def weight_of(weight: mx.array) -> tuple[mx.array, ...]:
    """For `kept_of`: as it is."""
    return (weight,)


def _gated_norm(kernels: Any, otherwise: Any) -> Callable[..., mx.array]:
    node, other = kernels.gated_norm, otherwise.gated_norm

    def gated_norm(module: Any, x: mx.array, gate: mx.array) -> mx.array:
        weight, groups = module.weight, module.groups
        heads = x.shape[-1] // weight.size
        if x.ndim != 3 or not x.dtype == gate.dtype == _FLOAT or (heads > 1 and groups > 1):
            return other(module, x, gate)
        (weight,) = kept_of(module, weight_of, weight)
        return node(
            x, gate, weight, module.eps, groups * heads, module.gate_first, module.activation == "sigmoid"
        )

    return gated_norm
