"""Which keys the queries of a step see: a slice of slots and, where a slice cannot say it, a mask.

Pure functions of the step's positions and of where each row's slot 0 lies. Masks are comparisons made on the
device, and one step makes each mask once: layers whose memories agree share it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx

from runtime.cache.lanes import Lanes
from runtime.cache.protocol import Mask
from runtime.cache.snapshot import Reach
from runtime.step import Step

NOWHERE = 1 << 30
"""The position of a key that nobody may see: later than any query."""
NARROW = 16
"""Tokens of a row in the widest step that decodes, with drafts."""


class Visible(NamedTuple):
    """Which slots a step's queries see."""

    start: int
    """The first slot."""
    stop: int
    """The slot after the last."""
    slot: int | None
    """Where all rows write; None if they differ."""
    mask: Mask
    """Who sees which of them."""


def visible_slots(
    step: Step, reach: Reach, bases: tuple[int, ...], capacity: int = 0, shown_by: int = 1
) -> Visible:
    """What the step's queries see, where bases[b] is the position of row b's slot 0.

    shown_by: where a mask has to say it and the step is narrow, slots that lie around the visible ones are
    shown too, as far as the capacity goes, so that their number is a multiple of this.
    """
    key = ("slots", reach.window, reach.chunk, bases, capacity, shown_by)
    return step.memo(key, lambda: _visible_slots(step, reach, bases, capacity, shown_by))


def _visible_slots(step: Step, reach: Reach, bases: tuple[int, ...], capacity: int, shown_by: int) -> Visible:
    placed = list(zip(step.starts, bases, strict=True))
    start = min(reach.oldest(position) - base for position, base in placed)
    stop = max(position - base for position, base in placed) + step.width
    assert start >= 0, "a query looks for keys that were dropped"
    slots = {position - base for position, base in placed}
    slot = slots.pop() if len(slots) == 1 else None
    level, rounded = len(set(placed)) == 1, shown_by > 1 and step.width <= NARROW
    if level and (step.width == 1 or not rounded):
        return Visible(start, stop, slot, _level_mask(step, reach, step.starts[0], stop - start))
    if rounded and stop <= capacity:
        start -= start % shown_by
        stop = min(stop + -stop % shown_by, capacity)
    asking, apart = (step.indices[:1], bases[:1]) if level else (step.indices, bases)
    held = mx.array(apart, dtype=mx.int32)[:, None] + mx.arange(start, stop, dtype=mx.int32)
    return Visible(start, stop, slot, see(asking, held, reach))


def _level_mask(step: Step, reach: Reach, position: int, keys: int) -> Mask:
    """For rows that stand side by side, with keys from the first query's oldest to the last query's own."""
    if step.width == 1:
        return None
    oldest = reach.oldest(position)
    if oldest == reach.oldest(position + step.width - 1):
        return "causal"
    return see(step.indices[:1], mx.arange(oldest, oldest + keys, dtype=mx.int32)[None], reach)


def joined_slots(step: Step, reach: Reach, bases: Sequence[int]) -> range:
    """Those that a step's queries see of what was there before it."""
    placed = list(zip(step.starts, bases, strict=True))
    return range(
        min(reach.oldest(start) - base for start, base in placed), max(start - base for start, base in placed)
    )


def joined_mask(step: Step, reach: Reach, bases: tuple[int, ...], old: range) -> Mask:
    """For keys made of the slots `old` followed by the step's own tokens."""

    def build() -> mx.array:
        return see(step.indices, _joined_places(step, bases, old), reach)

    return step.memo(("joined", reach, bases, old), build)


def _joined_places(step: Step, bases: tuple[int, ...], old: range) -> mx.array:
    """int32 [B, K], of K slots"""
    starts = mx.array(step.starts, dtype=mx.int32)[:, None]
    held = mx.array(bases, dtype=mx.int32)[:, None] + mx.arange(old.start, old.stop, dtype=mx.int32)
    return mx.concatenate([mx.where(held < starts, held, NOWHERE), step.indices], axis=1)


def places_of(step: Step, bases: tuple[int, ...], start: int, stop: int) -> mx.array:
    """int32 [B or 1, K]: positions in the slots [start, stop) of the step's rows. Made once per step."""

    def build() -> mx.array:
        apart = bases[:1] if len(set(bases)) == 1 else bases
        return mx.array(apart, dtype=mx.int32)[:, None] + mx.arange(start, stop, dtype=mx.int32)

    return step.memo(("places in", bases, start, stop), build)


def places_seen(step: Step, lanes: Lanes | None, keys: int) -> mx.array:
    """int32 [B or 1, K]: positions of the keys that a layer's memory shows to the step; [0, keys) of memory
    that has no lanes.
    """
    if lanes is None:
        return places_of(step, (0,), 0, keys)
    reach, bases = lanes.kept.reach, tuple(lanes.bases)
    if lanes.beside:
        old = joined_slots(step, reach, bases)
        return step.memo(("joined places", bases, old), lambda: _joined_places(step, bases, old))
    seen = visible_slots(step, reach, bases, lanes.arrays[0].shape[2], lanes.kept.shown_by)
    return places_of(step, bases, seen.start, seen.stop)


def see(queries: mx.array, keys: mx.array, reach: Reach) -> mx.array:
    """bool [B, 1, L, K] from the positions of queries [B, L] and keys [B, K]."""
    q, k = queries[:, None, :, None], keys[:, None, None, :]
    seen = k <= q
    if reach.window is not None:
        seen = seen & (k > q - reach.window)
    if reach.chunk is not None:
        seen = seen & (k >= q - q % reach.chunk)
    return seen
