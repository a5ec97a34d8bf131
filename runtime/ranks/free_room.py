"""What each rank has free for its part of layer memory, so that rank 0 refuses what one of them lacks.

Rank 0 counts what the layers of all ranks take together. So each rank says how much of that it has room for,
as its own part of it grows in proportion; the least that any says holds for all. Whole MiB are exchanged.
"""

import sys
from collections.abc import Sequence

from runtime.cache.layout import sequence_bytes
from runtime.ranks.whole_model import Whole
from runtime.records import dataclass

MIB = 1 << 20
_UNKNOWN = (1 << 31) - 1
_TOKENS = 4096
"""Of a sequence that shares are compared by."""


@dataclass(frozen=True, slots=True)
class Tightest:
    """The rank that has least room, for what all have."""

    rank: int
    free_bytes: int
    """What rows may take of its memory."""
    room_bytes: int
    """What they may take on all ranks together, then."""

    def __str__(self) -> str:
        return f"rank {self.rank} has {self.free_bytes:,} bytes free for its part"


def said_of(whole: Whole, free_bytes: int, spare_bytes: int) -> tuple[int, int]:
    """MiB that rows may take of this rank's memory, and of all ranks'. free_bytes: 0 for unknown.
    spare_bytes: what they leave of it.
    """
    own = [spec for i, spec in enumerate(whole.layout) if i not in whole.elsewhere]
    mine, everyone = sequence_bytes(own, _TOKENS), sequence_bytes(whole.layout, _TOKENS)
    if not free_bytes or not mine:
        return _UNKNOWN, _UNKNOWN
    free = max(free_bytes - spare_bytes, 0)
    return min(free // MIB, _UNKNOWN), min(free * everyone // mine // MIB, _UNKNOWN)


def tightest_of(said: Sequence[Sequence[int]]) -> Tightest:
    """said: of each rank what `said_of` gave there."""
    rank = min(range(len(said)), key=lambda rank: said[rank][1])
    free, room = said[rank]
    return Tightest(rank, free * MIB, sys.maxsize if room == _UNKNOWN else room * MIB)
