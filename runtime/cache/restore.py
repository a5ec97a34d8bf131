"""A row is put back a layer at a time.

What is kept of a long prompt may be gigabytes, and copying them takes as long as tens of steps. So whoever
has rows that are waited for copies a few layers between two steps.

Invariant: until all layers are back, the row is of no use, and no step reads or writes it. It may be moved,
and cleared.
"""

from collections.abc import Sequence

from runtime.cache.memory import LayerMemory
from runtime.cache.pages import Page
from runtime.records import dataclass


@dataclass(slots=True, eq=False)
class Restoring:
    """Pages that a row of `memory` is put back from, for which there is room."""

    memory: LayerMemory
    pages: Sequence[Page]
    """In order of position."""
    stop: int
    """The length that the row will have; 0: there is nothing to do."""
    layer: int = 0
    """Those before it are back."""

    @property
    def over(self) -> bool:
        return not self.stop or self.layer == len(self.memory)

    def go_on(self, row: int) -> None:
        """One layer more, evaluated. row: where it is now. CacheFull where others have taken its room."""
        self.put_back(row, self.layer + 1)
        self.memory.evaluate()

    def finish(self, row: int) -> None:
        """All that are left, lazily."""
        if not self.over:
            self.put_back(row, len(self.memory))

    def put_back(self, row: int, until: int) -> None:
        """The layers before `until`, lazily."""
        self.memory.restore(row, self.pages, self.stop, range(self.layer, until))
        self.layer = until
