"""Recurrent sublayers by the kernels, as parts of one node: see `runtime.parts.recurrent`."""

from typing import Any

import mlx.core as mx

from runtime.cpu.native.activations import KINDS
from runtime.cpu.native.pairs import adapted_matrix_of
from runtime.cpu.native.scans import (
    MOST_KEYS,
    MOST_STATES,
    MOST_TAPS,
    filters_of,
    gates_of,
    kept_of,
    rates_by_state,
    rates_of,
    weight_of,
)
from runtime.cpu.native.sublayers import joined_to_stream, norms_of
from runtime.parts.recurrent import RecurrentParts


def recurrence_of(kernels: Any, by: RecurrentParts, stacks: Any = None) -> Any:
    """The kernels' view of a sublayer that folds; None where they have none. stacks: as in `sublayers`."""
    norms = norms_of(kernels, (by.norm, by.after), by.norm_scale)
    matrices = [adapted_matrix_of(kernels, module, stacks) for module in (*by.opening, by.close)]
    widen = [None if module is None else adapted_matrix_of(kernels, module, stacks) for module in by.widen]
    if any(one is None and module is not None for one, module in zip(widen, by.widen, strict=True)):
        return None
    if norms is None or None in matrices or by.conv.weight.shape[1] > MOST_TAPS:
        return None
    if by.scales is not None and (by.scales.dtype != mx.float32 or by.kind == "conv"):
        return None
    *opening, close = matrices
    filters = kept_of(by.conv, filters_of, by.conv.weight, by.conv.get("bias"))
    if by.kind == "conv":
        return joined_to_stream(by, kernels.short_conv(norms[0], opening[0], *filters, close, norms[1]))
    rule, gated = _rule(kernels, by, stacks), by.gated_norm
    if rule is None or (gated is not None and gated.groups > 1 and gated.weight.size < _answers(by)):
        return None  # heads share a weight of several groups
    opened = norms[0], opening, by.scales, *filters
    part = kernels.recurrent(*opened, rule, *_gating(by), close, norms[1], KINDS[by.activation], widen)
    return joined_to_stream(by, part)


def _rule(kernels: Any, by: RecurrentParts, stacks: Any) -> Any:
    module, sizes = by.rule, by.sizes
    if by.kind == "selective":
        return _selective(kernels, by, stacks)
    if by.kind == "rg_lru":
        rates, *gates = gates_of(module)
        return kernels.LruRule(*gates, rates)
    if by.kind == "ssd":
        rates, bias, skip = kept_of(module, rates_of, module.A_log, module.dt_bias, module.D)
        parts = sizes.heads, sizes.head_dim, sizes.groups, sizes.state, sizes.steps
        return kernels.SsdRule(rates, bias, skip, *parts)
    if sizes.key_dim > MOST_KEYS:
        return None
    rates, bias = kept_of(module, rates_of, module.A_log, module.dt_bias)
    parts = sizes.key_heads, sizes.value_heads, sizes.key_dim, sizes.value_dim, sizes.strength
    return kernels.DeltaRule(rates, bias, *parts)


def _selective(kernels: Any, by: RecurrentParts, stacks: Any) -> Any:
    module, makes = by.rule, by.sizes
    norms = norms_of(kernels, makes.norms)
    opening, widen = (adapted_matrix_of(kernels, one, stacks) for one in (makes.open, makes.widen))
    if norms is None or opening is None or widen is None or module.A_log.shape[1] > MOST_STATES:
        return None
    rates, skip = kept_of(module, rates_by_state, module.A_log, module.D)
    return kernels.SelectiveRule(opening, norms, widen, rates, skip)


def _gating(by: RecurrentParts) -> tuple[Any, ...]:
    """(weight, eps, parts, gate_first, sigmoid)"""
    norm = by.gated_norm
    if norm is None:
        return None, 0.0, 1, False, False
    (weight,) = kept_of(norm, weight_of, norm.weight)
    parts = norm.groups * (_answers(by) // weight.size)
    return weight, norm.eps, parts, norm.gate_first, norm.activation == "sigmoid"


def _answers(by: RecurrentParts) -> int:
    sizes = by.sizes
    return sizes.heads * sizes.head_dim if by.kind == "ssd" else sizes.value_heads * sizes.value_dim
