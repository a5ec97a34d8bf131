"""What kernels need to write and read a layer's keys and values where they lie (`runtime.cache.buffer`), and
to fold over its states (`runtime.cache.recurrent`).
"""

from collections.abc import Hashable
from dataclasses import field
from typing import Any, NamedTuple

import mlx.core as mx

from runtime.cache.codec import Codec
from runtime.cache.snapshot import Reach
from runtime.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class LaneTraits:
    """What all lanes of one layer's memory have in common."""

    heads: int
    codecs: tuple[Codec, ...]
    """Of keys, and of values where they are kept beside them."""
    reach: Reach
    shown_by: int = 1
    """See `visible_slots`."""
    made: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])
    """What kernels have made of it, for their own use."""


@dataclass(frozen=True, slots=True, eq=False)
class StateTraits:
    """What all states of one layer's memory have in common."""

    made: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])
    """As in `LaneTraits`."""


class StepStates(NamedTuple):
    """The states that the rows of a step begin with."""

    kept: StateTraits
    arrays: list[mx.array]
    """[B, ...], in the order of the layout. Do not keep them."""
    again: bool
    """May a part of the step be kept, so that what is folded must be remembered until the commit?"""
    own: bool
    """May they be written into, if nobody else has the arrays? Not where a view of them may still be read."""


class Lanes(NamedTuple):
    """Where the rows of a step have their keys and values."""

    kept: LaneTraits
    arrays: list[mx.array]
    """One per part of the codecs, [row capacity, H, slots, width]. Do not keep them."""
    beside: list[mx.array]
    """Those of the step's own tokens, [B, H, L, width], where they are not in the lanes; else []."""
    first: int
    """The lanes' row that is the step's row 0."""
    bases: list[int]
    """Position of slot 0, for each row of the step."""
    fits: bool
    """Is there room for the step's tokens behind the rows? If not, they go beside the lanes."""
