"""What holds inside an engine between two steps, and in a prefix store at any time."""
# pyright: reportPrivateUsage=false

from typing import Any

from runtime.cache.layout import Encoder, Full, Recurrent, Shared, Stateless
from runtime.cache.pages import page_bytes
from runtime.cache.prefix import PrefixStore
from runtime.cache.snapshot import Span
from runtime.engine.loop import Loop
from runtime.speculate.drafter import Remembers


def check(loop: Loop) -> None:
    places, memory = loop._places, loop._memory
    rows = places.rows
    lengths = [row.length for row in rows] + [0] * (memory.rows - len(rows))
    for cache in memory.caches:  # all layers of a row agree, and no place that is free holds anything
        own = list(cache.lengths)
        if places.restoring and not own[len(places.decoding)]:
            own[len(places.decoding)] = lengths[len(places.decoding)]  # it is still to come
        assert own == lengths
    for row in rows:
        assert 0 <= row.length <= len(row.ids) + 1  # one token may be on its way
        assert not row.done
    assert places.prefilling is None or places.prefilling.unread > 0
    assert places.passed is None or (places.prefilling is not None and places.passed.unread > 0)
    drafters = [one for one in loop._drafting._standby._all.values() if isinstance(one, Remembers)]
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


def check_tree(store: PrefixStore) -> None:
    """What `runtime.cache.trie` and `runtime.cache.prefix` promise of nodes, pages and bytes."""
    total = 0
    for node in store._trie:
        total += page_bytes(node.page)
        assert node.keys
        assert node.parent is not None
        assert node.parent.children[node.keys[0]] is node
        assert node.start == node.parent.stop
        assert node.pins >= 0
        for spec, snapshot in zip(store.layout, node.page, strict=True):
            if snapshot is None:
                assert isinstance(spec, Recurrent | Encoder | Shared | Stateless)
                continue
            assert (snapshot.start, snapshot.stop) == (node.start, node.stop)
            if isinstance(spec, Full):
                assert isinstance(snapshot, Span)
                assert snapshot.held_from == node.start
    assert total == store.nbytes
    assert total <= store.limit_bytes or all(node.pins or not store._can_go(node) for node in store._trie)


def check_store(store: PrefixStore, users: int) -> None:
    check_tree(store)
    assert store._trie.root.pins + sum(node.pins for node in store._trie) == users
    assert users or store.nbytes <= store.limit_bytes
