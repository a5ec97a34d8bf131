"""What all kinds of layer memory know of their rows alike: how many tokens each has read.

Also here: kinds whose size does not depend on the number of tokens need no room for more of them.
"""

import sys

import mlx.core as mx

from runtime.step import Step


class Lengths:
    """The part of LayerCache that does not depend on the kind. `_fill_row` and `clear` are the kind's own."""

    def __init__(self, rows: int) -> None:
        self._lengths = [0] * rows

    @property
    def rows(self) -> int:
        return len(self._lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self._lengths)

    @property
    def room(self) -> int:
        return sys.maxsize

    def reserve(self, tokens: int, *, exact: bool = False) -> None:
        """Nothing to do: tokens take no room of their own."""

    def move(self, src: int, dst: int, copies: tuple[mx.array, ...]) -> None:
        if src != dst:
            self._fill_row(src, dst, copies)
            self._lengths[dst] = self._lengths[src]
            self.clear(src)

    def clear(self, row: int) -> None:
        raise NotImplementedError

    def _fill_row(self, src: int, dst: int, copies: tuple[mx.array, ...]) -> None:
        """Row `dst` holds what `src` does, of which these are copies; its length follows."""
        raise NotImplementedError

    def _resize_lengths(self, rows: int) -> None:
        self._lengths = self._lengths[:rows] + [0] * (rows - self.rows)


def rows_of(step: Step) -> slice:
    """The rows of a step, side by side as they are."""
    return slice(step.first, step.first + len(step.starts))
