"""The drafters of a model: told of everything that happens to places, and put to rest when memory is short.

A drafter with layer memory of its own counts in the engine's budget and is the first to give way: it frees
all its memory and rests until the engine is idle. So drafting never makes a row fail.

Such a drafter also has a prefix store of its own, so that a conversation's next turn finds what was read. The
store is in memory only: after a restart the drafter reads everything again, which costs only time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import mlx.core as mx

from runtime.cache.layout import sequence_bytes
from runtime.cache.prefix import Entry, PrefixStore
from runtime.cache.trie import split_namespace
from runtime.errors import CacheFull
from runtime.speculate.costs import DrafterTraits
from runtime.speculate.drafter import (
    Audition,
    Auditions,
    Drafter,
    Graded,
    Observes,
    Proposal,
    Reads,
    Remembers,
    Rows,
)
from runtime.speculate.forced_tokens import ForcedDrafter
from runtime.step import Step

One = TypeVar("One")


class Standby:
    """awake: the drafters by name, in the order of preference, without those that rest. graded: those that
    know beforehand how good a guess will be.
    """

    def __init__(self, drafters: Mapping[str, Drafter]) -> None:
        self._all = dict(drafters)
        self._stores: dict[str, PrefixStore] = {}
        self.awake = {
            name: one for name, one in drafters.items() if not isinstance(one, Remembers) or one.memory.rows
        }
        # Needed at every step, and to check whether a class has a protocol's methods takes 10 us.
        self.graded = {name: one for name, one in drafters.items() if isinstance(one, Graded)}
        self._observers = {name: one for name, one in drafters.items() if isinstance(one, Observes)}
        self._readers = {name: one for name, one in drafters.items() if isinstance(one, Reads)}
        self._remembering = {name: one for name, one in drafters.items() if isinstance(one, Remembers)}

    @property
    def kinds(self) -> dict[str, DrafterTraits]:
        """What drafting with each of them costs, those that rest included."""
        return {
            name: DrafterTraits(
                drafter.token_cost,
                drafter.limit,
                certain=isinstance(drafter, ForcedDrafter),
                auditions=isinstance(drafter, Auditions),
            )
            for name, drafter in self._all.items()
        }

    @property
    def ahead(self) -> int:
        """How many tokens beyond its own an entry of any drafter's memory depends on, at most."""
        return max((drafter.ahead for drafter in self._remembering.values()), default=0)

    def share(self, limit_bytes: int, own_bytes: int, tokens: int) -> int:
        """Divide what may be kept of earlier sequences between the drafters and the target. Returns the
        target's part.

        own_bytes: what the target keeps of a sequence of `tokens` tokens. Parts are proportional to what each
        keeps of one, so that all remember sequences for about as long. May be called again, with another
        limit.
        """
        sizes = {name: sequence_bytes(one.memory.layout, tokens) for name, one in self._remembering.items()}
        whole = own_bytes + sum(sizes.values())
        for name, drafter in self._remembering.items():
            part = limit_bytes * sizes[name] // whole
            if name in self._stores:
                self._stores[name].resize(part)
            else:
                self._stores[name] = PrefixStore(drafter.memory.layout, part)
                drafter.share(self._stores[name])
        return limit_bytes - sum(store.limit_bytes for store in self._stores.values())

    @property
    def kept_bytes(self) -> int:
        """What drafters hold of earlier sequences."""
        return sum(store.nbytes for store in self._stores.values())

    def describe(self) -> list[Entry]:
        """What drafters keep of earlier sequences, each under its name."""
        return [
            replace(entry, keys=tuple(map(_token, split_namespace(entry.keys)[0])), space=name)
            for name, store in self._stores.items()
            for entry in store.describe()
        ]

    def forget(self) -> None:
        """Forget what drafters keep of earlier sequences, except what rows need."""
        for store in self._stores.values():
            store.clear()

    def grades(self, ids: Sequence[Sequence[int]], forced: Sequence[int] = ()) -> dict[str, int]:
        """The drafters that have a guess for these rows, and how good it is. forced: as in Graded."""
        graded = self.graded
        found = {name: graded[name].grade(ids, forced) if name in graded else 1 for name in self.awake}
        return {name: grade for name, grade in found.items() if grade}

    def behind(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The drafters that would have to read for long before they could draft for these rows."""
        return [name for name, one in self._readers.items() if name in self.awake and one.behind(ids)]

    def ask(self, name: str, rows: Rows, depth: int) -> Proposal | None:
        try:
            return self.awake[name].propose(rows, depth)
        except CacheFull:
            self._put_to_rest(name)
            return None

    def audition(self, name: str, rows: Rows, count: int) -> Audition | None:
        """See Auditions.audition; None also for a drafter that rests."""
        drafter = self.awake.get(name)
        try:
            return drafter.audition(rows, count) if isinstance(drafter, Auditions) else None
        except CacheFull:
            self._put_to_rest(name)
            return None

    def each(self, what: Callable[[Drafter], None]) -> None:
        """Call this with each drafter in turn. One that has no room for it rests from then on."""
        self._each_of(self.awake, what)

    def _each_of(self, drafters: Mapping[str, One], what: Callable[[One], None]) -> None:
        for name, drafter in list(drafters.items()):
            try:
                if name in self.awake:
                    what(drafter)
            except CacheFull:
                self._put_to_rest(name)

    @property
    def observes(self) -> bool:
        """Does anybody start from what the target computes?"""
        return any(name in self.awake for name in self._observers)

    def observe(self, step: Step, hidden: mx.array | None, kept: Sequence[int]) -> None:
        """As Observes.observe, for those who do. hidden: None where nobody does."""
        if hidden is not None:
            self._each_of(self._observers, lambda one: one.observe(step, hidden, kept))

    def settle(self, lengths: Sequence[int]) -> None:
        self.each(lambda drafter: drafter.settle(lengths))

    def rest(self) -> bool:
        """Have drafters hand their memory back; False when there was none."""
        holding = [
            name
            for name, drafter in self._remembering.items()
            if name in self.awake and drafter.memory.nbytes
        ]
        for name in holding:
            self._put_to_rest(name)
        return bool(holding)

    def wake(self, rows: int) -> None:
        """No row is left: those that rest may try again, with this many places."""
        if len(self.awake) < len(self._all):
            resting = [drafter for name, drafter in self._all.items() if name not in self.awake]
            self.awake = dict(self._all)
            self.each(lambda drafter: drafter.resize(rows) if drafter in resting else None)

    def _put_to_rest(self, name: str) -> None:
        self.awake.pop(name).resize(0)


def _token(key: object) -> int:
    """The id that a key is, or begins with: some drafters have pairs of them."""
    return cast("int", key[0] if isinstance(key, tuple) else key)
