"""Sublayers of layers over several residual streams, by the kernels. deck: as in `sublayers`."""

from typing import Any

import mlx.core as mx

from runtime.cpu.native.pairs import paired
from runtime.cpu.native.streams import MOST
from runtime.cpu.native.sublayers import norm_of, norms_of
from runtime.parts.streams import AltUpCorrect, AltUpPredict, LaurelParts


def predicting(kernels: Any, by: AltUpPredict, deck: Any = None) -> Any:
    """The kernels' view of how streams are made of each other; None where they have none."""
    route = _route(kernels, by, deck)
    return None if route is None else kernels.predicting(*route, by.place)


def correcting(kernels: Any, by: AltUpCorrect, deck: Any = None) -> Any:
    """The kernels' view of how streams are corrected; None where they have none."""
    route = _route(kernels, by, deck)
    if route is None or (by.scale is not None and by.scale.dtype != mx.float32):
        return None
    return kernels.correcting(*route, by.place, by.scale)


def bypassing(kernels: Any, by: LaurelParts, deck: Any = None) -> Any:
    """The kernels' view of a way around a sublayer; None where they have none."""
    norms = norms_of(kernels, (by.norm, by.after))
    matrices = paired(kernels, by.open, deck), paired(kernels, by.close, deck)
    if norms is None or None in matrices:
        return None
    part = kernels.bypassing(norms[0], *matrices, norms[1])
    part.beside = by.beside
    return part


def of_copy(kernels: Any, part: Any, streams: int) -> Any:
    """part: what adds to the copy."""
    return None if part is None else kernels.of_copy(part, streams)


def joining(kernels: Any, part: Any, streams: int) -> Any:
    """part: what answers to the copy."""
    return None if part is None else kernels.joining(part, streams)


def _route(kernels: Any, by: AltUpPredict | AltUpCorrect, deck: Any) -> tuple[Any, Any, Any] | None:
    norm = norm_of(kernels, by.norm, by.norm_scale)
    router, shares = paired(kernels, by.router, deck), paired(kernels, by.shares, deck)
    if norm is None or router is None or shares is None or by.streams > MOST:
        return None
    return norm, router, shares
