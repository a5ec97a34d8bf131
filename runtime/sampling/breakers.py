"""What repetitions are not followed across: the border between this floor, which knows ids, and whoever
knows their text.
"""

from collections.abc import Sequence
from typing import Protocol


class Breakers(Protocol):
    """Texts, such as a line end, as they appear in ids. Used by several threads at once."""

    @property
    def reach(self) -> int:
        """In how many tokens before another one a text may have begun that ends in it."""
        ...

    def behind(self, ids: Sequence[int]) -> int:
        """How many of the last ids lie wholly behind the last of the texts; all where there is none."""
        ...

    def breaks(self, token: int) -> bool:
        """Is one of the texts in this token alone?"""
        ...
