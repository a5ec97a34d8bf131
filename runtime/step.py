"""One forward pass over several rows: who takes part, from which position, with how many tokens.

A row is a sequence's place in the batch; a model's caches hold rows 0..R-1. A step covers the half-open range
`first <= row < first + len(starts)`, so that every cache can hand out plain slices of its buffers. Rows may
be ragged: row b brings `counts[b]` tokens at positions `starts[b] .. starts[b] + counts[b]`, right-padded to
`width`. What a padded query computes is never read, and what it writes lies beyond the row's length, where
nobody looks.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import mlx.core as mx

T = TypeVar("T")


@dataclass(slots=True)
class Step:
    """B rows, L = `width` token columns.

    starts: position of the first new token of each row, that is, the row's length before the step.
    counts: new tokens of each row, 1 <= counts[b] <= width.
    long: which rows are read as long ones, for models that treat long sequences differently from their first
    token on; None: those that this step takes past the border.
    """

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    first: int = 0
    long: tuple[bool, ...] | None = None
    width: int = field(init=False)
    _memo: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])

    def __post_init__(self) -> None:
        assert len(self.starts) == len(self.counts) > 0
        assert min(self.counts) > 0
        assert min(self.starts) >= 0
        self.width = max(self.counts)

    @property
    def rows(self) -> range:
        return range(self.first, self.first + len(self.starts))

    @property
    def uniform(self) -> bool:
        """All rows start together and bring the same number of tokens: no padding, one shared mask."""
        return len(set(self.starts)) == 1 and len(set(self.counts)) == 1

    @property
    def offset(self) -> "int | mx.array":
        """Start positions in the form `mx.fast.rope` takes: an int when all rows agree, else int32 [B]."""
        if len(set(self.starts)) == 1:
            return self.starts[0]
        return self.memo("offset", lambda: mx.array(self.starts, dtype=mx.int32))

    @property
    def positions(self) -> mx.array:
        """Position of every token, int32 [B, L]; padding columns simply count on."""

        def build() -> mx.array:
            starts = mx.array(self.starts, dtype=mx.int32)
            return starts[:, None] + mx.arange(self.width, dtype=mx.int32)

        return self.memo("positions", build)

    def memo(self, key: Hashable, build: Callable[[], T]) -> T:
        """`build()` once per step for each key: layers of one kind share masks and positions."""
        try:
            return self._memo[key]
        except KeyError:
            pass
        made = self._memo[key] = build()
        return made
