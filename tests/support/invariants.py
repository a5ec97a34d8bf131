"""What holds inside an engine between two steps."""
# pyright: reportPrivateUsage=false

from typing import Any

from runtime.cache.prefix import PrefixStore
from runtime.engine.loop import Loop
from runtime.speculate.drafter import Remembers


def check(loop: Loop) -> None:
    places, memory = loop._places, loop._memory
    rows = places.rows
    for cache in memory.caches:  # all layers of a row agree, and no place that is free holds anything
        assert list(cache.lengths) == [row.length for row in rows] + [0] * (memory.rows - len(rows))
    for row in rows:
        assert 0 <= row.length <= len(row.ids) + 1  # one token may be on its way
        assert not row.done
    assert places.prefilling is None or places.prefilling.unread > 0
    drafters = [one for one in loop._desk._standby._all.values() if isinstance(one, Remembers)]
    held = memory.nbytes + sum(drafter.memory.nbytes for drafter in drafters)
    assert memory.budget.held_bytes == held
    sharing = loop._prefixes._sharing
    if sharing is not None:
        # Nobody outlives its row. One that has forgotten something in place is kept no more.
        assert {row for row in rows if not row.dropped} <= set(sharing._uses) <= set(rows)
        check_store(sharing.store, len(sharing._uses))
    for drafter in drafters:
        own: Any = drafter
        if own._sharing is not None:
            assert set(own._sharing._uses) <= set(own._lines)
            check_store(own._sharing.store, len(own._sharing._uses))


def check_store(store: PrefixStore, users: int) -> None:
    store.check()
    assert store._trie.root.pins + sum(node.pins for node in store._trie) == users
    assert users or store.nbytes <= store.limit_bytes
