"""Norms by the kernels, for float32; whatever else is asked goes the other way."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx


def table(kernels: Any, otherwise: Any) -> dict[str, Callable[..., Any]]:
    return {
        "rms_norm": _rms_norm(kernels, otherwise.rms_norm),
        "add_rms_norm": _add_rms_norm(kernels, otherwise.add_rms_norm),
        "rms": _rms(kernels, otherwise.rms),
        "layer_norm": _layer_norm(kernels, otherwise.layer_norm),
        "standardize": _standardize(kernels, otherwise.standardize),
        "cut": _cut(kernels, otherwise.cut),
    }


def _takes(*arrays: mx.array | None) -> bool:
    return all(array is None or (array.dtype == mx.float32 and array.ndim > 0) for array in arrays)


def _rms_norm(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    node = kernels.rms_norm

    def rms_norm(module: Any, x: mx.array) -> mx.array:
        weight = module["weight"]
        if x.dtype == mx.float32 and weight.dtype == mx.float32:
            return node(x, weight, module.eps)
        return otherwise(module, x)

    return rms_norm


def _add_rms_norm(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    node = kernels.rms_norm

    def add_rms_norm(module: Any, x: mx.array, to: mx.array) -> mx.array:
        weight = module["weight"]
        if _takes(x, weight, to) and x.shape == to.shape:
            return node(x, weight, module.eps, to)
        return otherwise(module, x, to)

    return add_rms_norm


def _rms(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    node = kernels.rms_norm
    return lambda x, eps: node(x, None, eps) if _takes(x) else otherwise(x, eps)


def _layer_norm(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    node = kernels.layer_norm

    def layer_norm(module: Any, x: mx.array) -> mx.array:
        weight, bias = module.get("weight"), module.get("bias")
        return node(x, weight, bias, module.eps) if _takes(x, weight, bias) else otherwise(module, x)

    return layer_norm


def _standardize(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    node = kernels.layer_norm
    return lambda x, eps: node(x, None, None, eps) if _takes(x) else otherwise(x, eps)


def _cut(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    node = kernels.cut
    return lambda x, times: node(x, times) if _takes(x) else otherwise(x, times)
