"""Activations, gates, softmax and argmax by the kernels, for float32; what else is asked goes the other way.

One formula whatever the size of an array: a token's numbers are the same bits alone and among others.
"""

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from runtime.cpu.native.module_cache import made_once

Unary = Callable[[mx.array], mx.array]

NAMES = ("silu", "gelu", "gelu_tanh", "relu", "relu2", "softplus", "sigmoid", "tanh")
"""In the order of `enum mk_act` (src/activations.h)."""

KINDS = {name: number for number, name in enumerate(NAMES)}


def table(kernels: Any, otherwise: Any) -> dict[str, Callable[..., Any]]:
    single = ("silu", "gelu", "gelu_tanh", "relu2", "softplus", "sigmoid")
    return {
        **{name: _act(kernels, KINDS[name], getattr(otherwise, name)) for name in single},
        "gated": _gated(kernels, otherwise.gated),
        "clipped_gate": _clipped_gate(kernels, otherwise.clipped_gate),
        "softcap": _softcap(kernels, otherwise.softcap),
        "bend": _bend(kernels, otherwise.bend),
        "softmax": _softmax(kernels, otherwise.softmax),
        "likeliest": _likeliest(kernels, otherwise.likeliest),
    }


def _takes(x: mx.array) -> bool:
    return x.dtype == mx.float32 and x.ndim > 0


def _act(kernels: Any, kind: int, otherwise: Unary) -> Unary:
    node = kernels.act
    return lambda x: node(kind, x) if _takes(x) else otherwise(x)


def _gated(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    node = kernels.gate

    def gated(activation: str, gate: mx.array, up: mx.array) -> mx.array:
        if _takes(gate) and up.dtype == mx.float32 and gate.shape == up.shape:
            return node(KINDS[activation], gate, up)
        return otherwise(activation, gate, up)

    return gated


def _clipped_gate(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    node = kernels.clipped_gate

    def clipped_gate(gate: mx.array, up: mx.array, limit: float, slope: float) -> mx.array:
        if _takes(gate) and up.dtype == mx.float32 and gate.shape == up.shape and limit > 0:
            return node(limit, slope, gate, up)
        return otherwise(gate, up, limit, slope)

    return clipped_gate


def _softcap(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    node = kernels.softcap
    return lambda x, cap: node(x, cap) if _takes(x) and cap > 0 else otherwise(x, cap)


def _bend(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    node = kernels.bend

    def bend(module: Any, x: mx.array) -> mx.array:
        by = bend_of(kernels, module) if _takes(x) else None
        return otherwise(module, x) if by is None else node(by, x)

    return bend


def bend_of(kernels: Any, module: Any) -> tuple[float, ...] | None:
    """What xIELU is computed by, as kernels take it; None where they do not."""
    return made_once(kernels, vars(module), "_bend", (module,), _xielu_numbers, module)


def _xielu_numbers(module: Any) -> tuple[float, ...] | None:
    rise, fall, beta, eps = (
        float(one.astype(mx.float32).item())
        for one in (module.alpha_p, module.alpha_n, module.beta, module.eps)
    )
    rise, fall = (max(slope, 0.0) + math.log1p(math.exp(-abs(slope))) for slope in (rise, fall))
    eps = min(eps, 0.0)  # it bounds numbers of at most 0
    return (rise, beta + fall, beta, eps) if eps <= 0 else None


def _softmax(kernels: Any, otherwise: Unary) -> Unary:
    node = kernels.softmax
    return lambda x: node(x) if _takes(x) else otherwise(x)


def _likeliest(kernels: Any, otherwise: Unary) -> Unary:
    node = kernels.likeliest
    return lambda x: node(x) if _takes(x) and x.shape[-1] else otherwise(x)
