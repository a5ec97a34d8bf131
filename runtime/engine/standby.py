"""The drafters that stand by: told of all that happens to places, and put to rest when memory is short.

A drafter with layer memory of its own counts in the engine's budget, and is the first to give way: it hands
all its memory back and rests until the engine is idle. Rows never fail for the sake of a guess.

Such a drafter also has a prefix store of its own, so that a conversation's next turn finds what it has read.
The store has its part of Options.prefix_bytes; the target's and the drafters' parts are as large as what they
keep of a sequence, so all of them remember about equally long. It is in memory only: after a restart a draft
reads from ids again, which costs it time and nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from runtime.cache.build import LayerMemory
from runtime.cache.layout import sequence_bytes
from runtime.cache.prefix import Entry, PrefixStore
from runtime.engine.options import Options
from runtime.errors import CacheFull
from runtime.speculate.costs import Kind
from runtime.speculate.drafter import Drafter, Graded, Proposal, Reads, Remembers, Rows


class Standby:
    """`awake`: drafters by name, those that rest left out, in order of preference. graded: those that know
    beforehand how good a guess will be; readers: those that read what the target read.
    """

    def __init__(self, drafters: Mapping[str, Drafter]) -> None:
        self._all = dict(drafters)
        self._stores: dict[str, PrefixStore] = {}
        self.awake = dict(drafters)
        # Asked for at every step, and looking whether a class has a protocol's methods takes 10 us.
        self.graded = {name: one for name, one in drafters.items() if isinstance(one, Graded)}
        self.readers = {name: one for name, one in drafters.items() if isinstance(one, Reads)}

    @property
    def kinds(self) -> dict[str, Kind]:
        """What drafting costs each of them, those that rest included."""
        return {name: Kind(drafter.token_cost, drafter.limit) for name, drafter in self._all.items()}

    @property
    def ahead(self) -> int:
        """How many tokens beyond its own the entries of any of them look."""
        return max((drafter.ahead for drafter in self._remembering.values()), default=0)

    def share(self, target: LayerMemory, options: Options) -> int | None:
        """Give drafters their parts of options.prefix_bytes; what is left for the target."""
        limit, tokens = options.prefix_bytes, options.context_length
        if limit is None:
            return None
        sizes = {name: sequence_bytes(one.memory.layout, tokens) for name, one in self._remembering.items()}
        own = sequence_bytes(target.layout, tokens, kept_format=options.kv_format)
        whole = own + sum(sizes.values())
        for name, drafter in self._remembering.items():
            self._stores[name] = PrefixStore(drafter.memory.layout, limit * sizes[name] // whole)
            drafter.share(self._stores[name])
        return limit - sum(store.limit_bytes for store in self._stores.values())

    def describe(self) -> list[Entry]:
        """What drafters keep of earlier sequences, each under its name."""
        return [
            replace(entry, keys=tuple(map(_token, entry.keys)), space=name)
            for name, store in self._stores.items()
            for entry in store.describe()
        ]

    def forget(self) -> None:
        """All of it that no row needs."""
        for store in self._stores.values():
            store.clear()

    def ask(self, name: str, rows: Rows, depth: int) -> Proposal | None:
        try:
            return self.awake[name].propose(rows, depth)
        except CacheFull:
            self._put_to_rest(name)
            return None

    def tell(self, what: Callable[[Drafter], None]) -> None:
        """Tell all of them, in turn."""
        for name, drafter in list(self.awake.items()):
            try:
                what(drafter)
            except CacheFull:
                self._put_to_rest(name)

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
            self.tell(lambda drafter: drafter.resize(rows) if drafter in resting else None)

    def _put_to_rest(self, name: str) -> None:
        self.awake.pop(name).resize(0)

    @property
    def _remembering(self) -> dict[str, Remembers]:
        return {name: drafter for name, drafter in self._all.items() if isinstance(drafter, Remembers)}


def _token(key: object) -> int:
    """The id that a key begins with: some drafters have pairs of them."""
    return cast("int", key[0] if isinstance(key, tuple) else key)
