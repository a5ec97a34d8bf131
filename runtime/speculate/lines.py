"""What drafters with layer memory of their own have in common (`drafter.Remembers`): a line of notes for each
place in it, which goes where the place goes, and a store of what earlier rows have left.

Invariant: a line is a user of the store from `Sharing.begin` on, until its row ends or its place is cleared.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import mlx.core as mx

from runtime.cache.memory import LayerMemory
from runtime.cache.prefix import PrefixStore
from runtime.cache.sharing import Sharing

L = TypeVar("L")


class Lines(Generic[L]):
    """make: a line that nothing is noted in. spacing: as Sharing has it."""

    def __init__(self, memory: LayerMemory, make: Callable[[], L], *, spacing: int) -> None:
        self.memory = memory
        self._make, self._spacing = make, spacing
        self._lines = [make() for _ in range(memory.rows)]
        self._sharing: Sharing[L] | None = None

    def share(self, store: PrefixStore) -> None:
        """See Remembers."""
        self._sharing = Sharing(self.memory, store, spacing=self._spacing)

    def move(self, src: int, dst: int) -> None:
        """See Drafter, as of what follows."""
        self.memory.move(src, dst)
        self._lines[dst], self._lines[src] = self._lines[src], self._make()

    def clear(self, row: int) -> None:
        self.memory.clear(row)
        self._leave(self._lines[row])
        self._lines[row] = self._make()

    def resize(self, rows: int) -> None:
        self.memory.resize(rows)
        for line in self._lines[rows:]:
            self._leave(line)
        self._lines = (self._lines + [self._make() for _ in range(rows)])[:rows]

    def _leave(self, line: L) -> None:
        if self._sharing is not None:
            self._sharing.forget(line)


def padded(states: mx.array, width: int) -> mx.array:
    """What a line brings into a step of all, [1, L, D]: as wide as the widest, with zeros."""
    missing = width - states.shape[1]
    return mx.pad(states, [(0, 0), (0, missing), (0, 0)]) if missing else states
