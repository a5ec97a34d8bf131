"""Sublayers of layers over several residual streams, by the kernels. stacks: as in `sublayers`."""

from typing import Any

import mlx.core as mx

from runtime.cpu.native.pairs import adapted_matrix_of
from runtime.cpu.native.streams import MOST
from runtime.cpu.native.sublayers import norm_of, norms_of
from runtime.parts.streams import AltUpCorrect, AltUpPredict, LaurelParts


def predict_of(kernels: Any, by: AltUpPredict, stacks: Any = None) -> Any:
    """The kernels' view of how streams are made of each other; None where they have none."""
    route = _route(kernels, by, stacks)
    return None if route is None else kernels.altup_predict(*route, by.place)


def correct_of(kernels: Any, by: AltUpCorrect, stacks: Any = None) -> Any:
    """The kernels' view of how streams are corrected; None where they have none."""
    route = _route(kernels, by, stacks)
    if route is None or (by.scale is not None and by.scale.dtype != mx.float32):
        return None
    return kernels.altup_correct(*route, by.place, by.scale)


def laurel_of(kernels: Any, by: LaurelParts, stacks: Any = None) -> Any:
    """The kernels' view of a way around a sublayer; None where they have none."""
    norms = norms_of(kernels, (by.norm, by.after))
    matrices = adapted_matrix_of(kernels, by.open, stacks), adapted_matrix_of(kernels, by.close, stacks)
    if norms is None or None in matrices:
        return None
    part = kernels.laurel(norms[0], *matrices, norms[1])
    part.beside = by.beside
    return part


def active_of(kernels: Any, part: Any, streams: int) -> Any:
    """part: the kernels' view of what adds to the copy; None where they have none."""
    return None if part is None else kernels.altup_active(part, streams)


def join_of(kernels: Any, part: Any, streams: int) -> Any:
    """part: the kernels' view of what answers to the copy; None where they have none."""
    return None if part is None else kernels.altup_join(part, streams)


def _route(kernels: Any, by: AltUpPredict | AltUpCorrect, stacks: Any) -> tuple[Any, Any, Any] | None:
    norm = norm_of(kernels, by.norm, by.norm_scale)
    router, shares = (adapted_matrix_of(kernels, one, stacks) for one in (by.router, by.shares))
    if norm is None or router is None or shares is None or by.streams > MOST:
        return None
    return norm, router, shares
