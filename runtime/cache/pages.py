"""Pages: what all layers remember of one range of positions, cut and completed together.

What a Snapshot is to a layer, a Page is to a model. Everything here is lazy: arrays that nobody evaluates
cost nothing.

Invariant: all snapshots of a page cover the same range [start, stop). A layer of growing memory always has
one, and Full and Pooled layers hold all of it; windowed layers may lack its beginning, and folds are known
at its stop or not at all.
"""

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from runtime.cache.layout import (
    Chunked,
    Encoder,
    Full,
    LayerSpec,
    Pooled,
    Recurrent,
    Rotating,
    Shared,
    Stateless,
)
from runtime.cache.snapshot import Checkpoint, Reach, Snapshot, Span, detached

Page = tuple[Snapshot | None, ...]
"""One snapshot per layer of the layout; None for layers that own nothing."""


def cuts_anywhere(layout: Sequence[LayerSpec]) -> bool:
    """Can a row go back to any earlier length? If not, it has to be paged where it will be resumed."""
    return all(isinstance(spec, Full | Shared | Stateless) for spec in layout)


def page_bytes(page: Page) -> int:
    return sum(snapshot.nbytes for snapshot in page if snapshot is not None)


def page_arrays(page: Page) -> list[mx.array]:
    return [array for snapshot in page if snapshot is not None for array in snapshot.arrays]


def split_page(page: Page, at: int) -> tuple[Page, Page]:
    """[start, at) and [at, stop). Of a fold, only the right part is known."""
    halves = [(None, None) if snapshot is None else snapshot.split(at) for snapshot in page]
    return tuple(left for left, _ in halves), tuple(right for _, right in halves)


def lightened(layout: Sequence[LayerSpec], page: Page, following: Page) -> Page:
    """What is still needed when no sequence starts at the page's stop any more: what the page that follows
    sees of it. The same page if that is all of it.
    """

    def needed(spec: LayerSpec, mine: Snapshot | None, later: Snapshot | None) -> Snapshot | None:
        match spec:
            case Rotating() | Chunked():
                return _seen_from(cast("Span", mine), cast("Span", later), Reach.of(spec))
            case Recurrent() | Encoder():
                return None
            case Full() | Pooled() | Shared() | Stateless():
                return mine

    light = tuple(needed(*layer) for layer in zip(layout, page, following, strict=True))
    return light if page_bytes(light) < page_bytes(page) else page


def improved(page: Page, start: int, other: Page) -> Page:
    """For each layer the more complete snapshot. `page` covers [start, stop), `other` ends there too."""

    def better(mine: Snapshot | None, theirs: Snapshot | None) -> Snapshot | None:
        if theirs is None:
            return mine
        if mine is None:
            assert isinstance(theirs, Checkpoint)
            return Checkpoint(start, theirs.stop, theirs.arrays)
        if isinstance(mine, Span) and isinstance(theirs, Span) and theirs.held_from < mine.held_from:
            return Span(start, theirs.stop, theirs.arrays)
        return mine

    return tuple(better(*pair) for pair in zip(page, other, strict=True))


def _seen_from(span: Span, later: Span, reach: Reach) -> Span:
    hole = later.held_from > later.start
    floor = span.stop if hole else min(span.stop, reach.needed(later.stop))
    if floor <= span.held_from:
        return span
    return Span(span.start, span.stop, tuple(map(detached, span.cut(floor, span.stop))))
