"""Sublayers of what lies behind the stream, by the kernels. deck: as in `sublayers`."""

from typing import Any

from runtime.cpu.native.pairs import paired
from runtime.parts.streams import AppendInput, ReadAppended


def laying(kernels: Any, by: AppendInput) -> Any:
    """The kernels' view of laying something there."""
    return kernels.laying(by.width)


def becoming(kernels: Any, part: Any) -> Any:
    """part: what answers to it; None where kernels have no view of that."""
    return None if part is None else kernels.becoming(part)


def hearing(kernels: Any, by: ReadAppended, part: Any, deck: Any = None) -> Any:
    """part: what hears it."""
    close = paired(kernels, by.close, deck)
    return None if part is None or close is None else kernels.hearing(close, part)
