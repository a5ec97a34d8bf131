"""A radix tree over opaque keys: the structure alone, for any kind of page.

A key is whatever stands for one position: a token id, the digest of an image, a (token, next token) pair. A
node owns the edge that leads to it, the positions [start, stop), and one page about them; its path from the
root spells all keys before `stop`.

Invariants: an edge is never empty (the root's is), a node begins where its parent stops, and siblings differ
in their first key. Nobody but this file changes `keys`, `start`, `parent` or `children`.
"""

from collections.abc import Hashable, Iterator
from dataclasses import field
from typing import Any, Generic, TypeVar, cast

from runtime.records import dataclass

P = TypeVar("P")
Keys = tuple[Hashable, ...]


@dataclass(slots=True, eq=False)
class Node(Generic[P]):
    """An edge of the tree, and the page of its keys."""

    keys: Keys
    """Those of the edge: `start` to `stop`."""
    start: int
    page: P
    """What is kept for them."""
    parent: "Node[P] | None" = None
    children: "dict[Hashable, Node[P]]" = field(default_factory=dict)
    pins: int = 0
    """How many users rely on `stop` being on the path."""
    used: int = 0
    """When it was last read or written, as an ordinal, not a time: the order of eviction."""
    used_at_s: float = 0.0
    """The same in seconds since 1970, for people."""

    @property
    def stop(self) -> int:
        return self.start + len(self.keys)

    @property
    def path(self) -> "list[Node[P]]":
        """From the root's child down to this node; [] for the root."""
        nodes: list[Node[P]] = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class Trie(Generic[P]):
    """`blank` is the root's page."""

    def __init__(self, blank: P) -> None:
        self.root: Node[P] = Node((), 0, blank)

    def __iter__(self) -> Iterator[Node[P]]:
        """All nodes but the root, parents first, siblings in the order they came."""
        stack = [*reversed(self.root.children.values())]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))

    def walk(self, keys: Keys) -> tuple[list[Node[P]], int]:
        """The nodes that share at least one key with `keys`, in order, and how many keys agree in all."""
        path: list[Node[P]] = []
        node, matched = self.root, 0
        while matched == node.stop and matched < len(keys):
            child = node.children.get(keys[matched])
            if child is None:
                break
            node = child
            path.append(node)
            matched += common(node.keys, keys[matched : matched + len(node.keys)])
        return path, matched

    def append(self, parent: Node[P], keys: Keys, page: P) -> Node[P]:
        """A new leaf below `parent`."""
        assert keys
        assert keys[0] not in parent.children
        node = Node(keys, parent.stop, page, parent)
        parent.children[keys[0]] = node
        return node

    def split(self, node: Node[P], at: int, upper: P, lower: P) -> Node[P]:
        """Cut the edge at `at`. Returns the new node above; `node` itself, pins and all, keeps its stop."""
        assert node.start < at < node.stop
        assert node.parent is not None
        cut = at - node.start
        above = Node(
            node.keys[:cut], node.start, upper, node.parent, used=node.used, used_at_s=node.used_at_s
        )
        node.parent.children[above.keys[0]] = above
        node.keys, node.start, node.page, node.parent = node.keys[cut:], at, lower, above
        above.children[node.keys[0]] = node
        return above

    def remove(self, leaf: Node[P]) -> None:
        assert not leaf.children
        assert leaf.parent is not None
        del leaf.parent.children[leaf.keys[0]]


def in_namespace(keys: Keys, *words: str | int) -> Keys:
    """The keys of a sequence in the namespace that these words name, of which the first is text; "" is none.
    It has nothing in common with the same keys in another. The first key says the words, and that suffices: a
    prefix is shared from the first key on or not at all.
    """
    said = tuple(word for word in words if word != "")
    return ((*said, keys[0]), *keys[1:]) if said and keys else keys


def split_namespace(keys: Keys) -> tuple[Keys, tuple[str | int, ...]]:
    """The keys of an edge without the words of their namespace (`in_namespace`), and these."""
    first = cast("tuple[Any, ...]", keys[0]) if isinstance(keys[0], tuple) else ()
    if not first or not isinstance(first[0], str):
        return keys, ()
    *words, key = first
    return (key, *keys[1:]), tuple(words)


def common(a: Keys, b: Keys) -> int:
    """How many leading keys agree. By halves, since slices compare much faster than one key at a time."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
