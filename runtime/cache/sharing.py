"""Rows over a prefix store: where a row starts, when it is paged, and what it leaves behind.

A row begins with the longest beginning that is known and may be resumed. Layers that can be cut anywhere are
paged once, when the row ends; all others at marks while the prompt is read, which is why chunks end there.
Whatever ends a row, what it computed is kept.

Pages are evaluated before the next step is made: a copy that is still to be done makes the next write to a
row copy the whole buffer (measured: 200 ms in place of 0.2).

Invariant: `Use.kept` keys of a user are in the store, and `Use.node`, which is held, keeps them there.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import mlx.core as mx

from runtime.cache.marks import page_marks
from runtime.cache.memory import LayerMemory
from runtime.cache.pages import cuts_anywhere
from runtime.cache.prefix import Match, PageNode, PrefixStore
from runtime.cache.restore import Restoring
from runtime.errors import CacheFull
from runtime.records import dataclass

U = TypeVar("U", bound=Hashable)


@dataclass(slots=True)
class Use:
    """What the store holds for one user."""

    kept: int
    """How many of the user's keys are in the store, from the first on."""
    node: PageNode
    """Where these end. It is held, so it stays."""
    marks: tuple[int, ...]
    """Positions at which the user is still to be paged, ascending."""


class Sharing(Generic[U]):
    """A user is whatever stands for a sequence while its place in `memory` may change.

    spacing: least distance of marks nobody insists on, in tokens. marking: page at marks even where layers
    can be cut anywhere.
    """

    def __init__(
        self, memory: LayerMemory, store: PrefixStore, *, spacing: int, marking: bool = False
    ) -> None:
        self.store = store
        self.anywhere = cuts_anywhere(memory.layout)
        self._memory = memory
        self._spacing = spacing
        self._marking = marking or not self.anywhere
        self._uses: dict[U, Use] = {}

    def __contains__(self, user: U) -> bool:
        return user in self._uses

    def begin(
        self, user: U, place: int, keys: Sequence[Hashable], match: Match, marks: Iterable[int] = ()
    ) -> int:
        """Put the empty row at `place` where `match` says; the length it then has. keys: its whole prompt.

        Where memory has no room for what matched, nothing did.
        """
        restoring = self.enter(user, place, keys, match, marks)
        restoring.finish(place)
        return restoring.stop

    def enter(
        self, user: U, place: int, keys: Sequence[Hashable], match: Match, marks: Iterable[int] = ()
    ) -> Restoring:
        """As `begin`, but what the row begins with is still to be copied to its place."""
        try:
            if match.offset:
                self._memory.claim(place, match.offset)
        except CacheFull:
            match = Match(0, 0, (), self.store.lookup(()).node)
        self.store.hold(match.node)
        self._uses[user] = Use(match.offset, match.node, self._marks(keys, match, marks))
        return Restoring(self._memory, match.pages, match.offset)

    def expect(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> None:
        """See `runtime.engine.fetching.Keeper`."""

    def readable(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> int:
        """How many of these pages of a sequence, which were read from disk here, may come into the store."""
        del keys
        return len(ranges)

    def chunk(self, user: U, length: int, count: int) -> int:
        """How many of `count` keys behind `length` may be read before the next mark."""
        mark = self.next_mark(user, length)
        return count if mark is None else min(count, mark - length)

    def next_mark(self, user: U, length: int) -> int | None:
        """Where behind `length` the row is to be paged next while its prompt is read."""
        use = self._uses.get(user)
        # Those at or before it were passed in one step with what stood around them.
        return None if use is None else next((mark for mark in use.marks if mark > length), None)

    def reached(self, user: U, place: int, keys: Sequence[Hashable]) -> PageNode | None:
        """`keys` are in memory, evaluated: page them if this is a mark."""
        use = self._uses.get(user)
        if use is None or len(keys) not in use.marks:
            return None
        use.marks = tuple(mark for mark in use.marks if mark > len(keys))
        return self.page(user, place, keys)

    def end(self, user: U, place: int, keys: Sequence[Hashable]) -> PageNode | None:
        """The row is over, its place in memory still as it was: keep what it computed."""
        if user not in self._uses:
            return None
        node = self.page(user, place, keys)
        self.forget(user)
        return node

    def forget(self, user: U) -> None:
        """The row is over, and what it computed is not to be trusted."""
        use = self._uses.pop(user, None)
        if use is not None:
            self.store.release(use.node)
            mx.eval(self.store.changed())  # until then what was cut off takes its memory

    def clear(self) -> None:
        """Forget all that no user needs."""
        self.store.clear()
        mx.eval(self.store.changed())

    def resize(self, limit_bytes: int) -> None:
        """Keep so much from now on."""
        self.store.resize(limit_bytes)
        mx.eval(self.store.changed())

    def page(self, user: U, place: int, keys: Sequence[Hashable]) -> PageNode | None:
        """Give the store what the row computed since its last page. None if that is nothing, or not kept."""
        use = self._uses[user]
        if len(keys) <= use.kept:
            return None
        node = self.store.insert(keys, use.kept, self._memory.snapshot(place, use.kept))
        mx.eval(self.store.changed())  # now, not with the next step: see above
        if node is None:
            return None
        self.store.hold(node)  # before the old one is let go: in between, eviction could take both
        self.store.release(use.node)
        use.kept, use.node = len(keys), node
        return node

    def _marks(self, keys: Sequence[Hashable], match: Match, asked: Iterable[int]) -> tuple[int, ...]:
        if not self._marking:
            return ()
        return page_marks(
            asked, start=match.offset, stop=len(keys), branch=match.matched, spacing=self._spacing
        )
