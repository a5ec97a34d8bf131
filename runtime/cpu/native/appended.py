"""Sublayers of what is appended to the stream, by the kernels. stacks: as in `sublayers`."""

from typing import Any

from runtime.cpu.native.pairs import adapted_matrix_of
from runtime.parts.streams import AppendInput, ReadAppended


def append_input_of(kernels: Any, by: AppendInput) -> Any:
    """The kernels' view of appending what a step brings."""
    return kernels.append_input(by.width)


def update_appended_of(kernels: Any, part: Any) -> Any:
    """part: the kernels' view of what answers to it; None where they have none."""
    return None if part is None else kernels.update_appended(part)


def read_appended_of(kernels: Any, by: ReadAppended, part: Any, stacks: Any = None) -> Any:
    """part: the kernels' view of what reads it; None where they have none."""
    close = adapted_matrix_of(kernels, by.close, stacks)
    return None if part is None or close is None else kernels.read_appended(close, part)
