"""What kernels need to write and read a layer's keys and values where they lie (`runtime.cache.buffer`)."""

from collections.abc import Hashable
from dataclasses import field
from typing import Any, NamedTuple

import mlx.core as mx

from runtime.cache.codec import Codec
from runtime.cache.snapshot import Reach
from runtime.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What all lanes of one layer's memory have in common."""

    heads: int
    codecs: tuple[Codec, ...]
    """Of keys, and of values where they are kept beside them."""
    reach: Reach
    made: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])
    """What kernels have made of it, for their own use."""


class Lanes(NamedTuple):
    """Where the rows of a step have their keys and values."""

    kept: Kept
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
