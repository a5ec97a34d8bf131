"""The prefix store: what was computed for the beginning of one sequence serves every other that begins alike.

A radix tree whose nodes hold pages, shared by all rows. It copies nothing by itself: rows give it pages and
are put back from them, so it depends on no live state, and a lookup decides everything before such
state is touched.

Bytes are bounded. What was used least recently goes first: a leaf is dropped, and a node with one child gives
up being a place to resume, when that frees something. A node that is held stays, with what leads to it.

Invariants: the tree's own; pages span exactly their node's edge; Full layers hold all of it;
`nbytes` is the sum over all pages and within `limit_bytes`, unless what is held alone is more.

Sequences with another model, adapter or cache format belong into another store, or get a first key that says
so. A drafter whose entries look one token ahead has (token, next token) pairs as keys: a match of k keys is
then valid for both.
"""

import heapq
import itertools
import time
from collections.abc import Hashable, Iterator, Sequence

import mlx.core as mx

from runtime.cache.layout import Chunked, Encoder, LayerSpec, Recurrent, Rotating
from runtime.cache.pages import Page, improved, lightened, page_arrays, page_bytes, split_page
from runtime.cache.snapshot import resumable
from runtime.cache.trie import Keys, Node, Trie
from runtime.records import dataclass

PageNode = Node[Page]
Age = tuple[bool, int, int]


@dataclass(frozen=True, slots=True)
class Match:
    """What the store has of a prompt."""

    matched: int
    """Leading keys that it knows."""
    offset: int
    """How many of these a row can start with; fewer than the prompt has, so that something is left to
    compute.
    """
    pages: tuple[Page, ...]
    """What to restore, in order of position."""
    node: PageNode
    """The deepest of the pages' nodes, or the root."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One node as people are shown it: an edge of the tree, which holds the tokens [start, stop)."""

    depth: int
    """Nodes on the way from the root."""
    start: int
    stop: int
    keys: Keys
    """Those of the edge."""
    nbytes: int
    resumable: bool
    """A sequence can start at its stop."""
    pins: int
    """Sequences that rely on it now."""
    used_at_s: float
    """When it was last read or written, in seconds since 1970."""
    space: str = ""
    """What sets its sequences apart from others that begin alike; "" for nothing."""


class PrefixStore:
    """For sequences of layers laid out as `layout`. `limit_bytes` bounds the pages of the whole tree."""

    def __init__(self, layout: Sequence[LayerSpec], limit_bytes: int) -> None:
        self.layout = tuple(layout)
        self.limit_bytes = limit_bytes
        self.nbytes = 0
        self._trie: Trie[Page] = Trie(tuple(None for _ in layout))
        self._clock = itertools.count(1)
        self._changed: dict[PageNode, None] = {}
        # Of nodes with one child: those that nothing can be taken from, as long as neither page changes.
        self._light: set[PageNode] = set()
        # Full layers hold every edge whole, so only the others decide; folds do so at the least cost.
        self._folds = [i for i, spec in enumerate(layout) if isinstance(spec, Recurrent | Encoder)]
        self._deciding = self._folds + [
            i for i, spec in enumerate(layout) if isinstance(spec, Rotating | Chunked)
        ]

    def lookup(self, keys: Sequence[Hashable]) -> Match:
        """The deepest place below len(keys) from which every layer can go on. Changes nothing."""
        path, matched = self._trie.walk(tuple(keys))
        for depth in range(len(path), 0, -1):
            # Inside one edge, being resumable never ends as positions grow: only its end need be asked.
            stop = min(path[depth - 1].stop, matched, len(keys) - 1)
            if stop > path[depth - 1].start and self._can_resume(path[:depth], stop):
                return Match(matched, stop, tuple(node.page for node in path[:depth]), path[depth - 1])
        return Match(matched, 0, (), self._trie.root)

    def insert(self, keys: Sequence[Hashable], start: int, page: Page) -> PageNode | None:
        """Remember `page`, which covers [start, len(keys)).

        Returns the node whose edge holds the last key. None when nothing was kept: too large, or the keys
        before `start` are not here.
        """
        all_keys = tuple(keys)
        assert start < len(all_keys)
        path, matched = self._trie.walk(all_keys)
        if matched < start or page_bytes(page) > self.limit_bytes:
            return None
        if self._ends_inside(path, matched, len(all_keys)) and self._can_resume(path, matched):
            self._touch(path[-1])
            return path[-1]
        node, rest = self._fill(path, matched, start, len(all_keys), page)
        if matched < len(all_keys):
            node = self._trie.append(node, all_keys[matched:], rest)
            self._weigh_again(node)
            self._count(node, page_bytes(rest))
        self._touch(node)
        return node if self._evict(node) else None

    def hold(self, node: PageNode) -> None:
        """Keep the path up to node.stop until `release`. Counts as use."""
        node.pins += 1
        self._touch(node)

    def release(self, node: PageNode) -> None:
        assert node.pins > 0
        node.pins -= 1
        if self.nbytes > self.limit_bytes:
            self._shrink()

    def changed(self) -> list[mx.array]:
        """Arrays of pages that came or were cut since the last call. Evaluate them before the next write."""
        arrays = [array for node in self._changed for array in page_arrays(node.page)]
        self._changed.clear()
        return arrays

    def clear(self) -> None:
        """Forget all that nobody holds."""
        limit = self.limit_bytes
        self.resize(-1)
        self.limit_bytes = limit

    def resize(self, limit_bytes: int) -> None:
        """Another limit. What is beyond it goes now, but for what is held: that goes when it is let go of."""
        self.limit_bytes = limit_bytes
        if self.nbytes > limit_bytes:
            self._shrink()

    def describe(self) -> list[Entry]:
        """All nodes, parents before children."""
        entries: list[Entry] = []
        for node in self._trie:
            path = node.path
            entries.append(
                Entry(
                    depth=len(path),
                    start=node.start,
                    stop=node.stop,
                    keys=node.keys,
                    nbytes=page_bytes(node.page),
                    resumable=self._can_resume(path, node.stop),
                    pins=node.pins,
                    used_at_s=node.used_at_s,
                )
            )
        return entries

    def _ends_inside(self, path: list[PageNode], matched: int, stop: int) -> bool:
        return matched == stop and bool(path) and matched < path[-1].stop

    def _can_resume(self, path: Sequence[PageNode], stop: int) -> bool:
        return all(resumable(self.layout[i], [node.page[i] for node in path], stop) for i in self._deciding)

    def _fill(
        self, path: list[PageNode], matched: int, start: int, stop: int, page: Page
    ) -> tuple[PageNode, Page]:
        """Give nodes that exist already what they lack. Returns the node that ends at `matched`, and the part
        of the page that lies beyond it.
        """
        node, rest = self._trie.root, page
        for node in path:
            end = min(node.stop, matched)
            if end < node.stop:
                node = self._split(node, end)
            if end <= start:
                continue
            part = rest
            if end < stop:
                part, rest = split_page(rest, end)
            self._replace(node, improved(node.page, node.start, part))
        return node, rest

    def _split(self, node: PageNode, at: int) -> PageNode:
        upper, lower = split_page(node.page, at)
        self._weigh_again(node)
        self._changed[node] = None
        above = self._trie.split(node, at, upper, lower)
        self._changed[above] = None
        return above

    def _replace(self, node: PageNode, page: Page) -> None:
        self._weigh_again(node)
        more = page_bytes(page) - page_bytes(node.page)
        node.page = page
        self._count(node, more)

    def _weigh_again(self, node: PageNode) -> None:
        """Its page has come or changes: of the one before, more may be taken than was."""
        self._light.discard(node)
        if node.parent is not None:
            self._light.discard(node.parent)

    def _count(self, node: PageNode, more_bytes: int) -> None:
        self.nbytes += more_bytes
        self._changed[node] = None

    def _touch(self, node: PageNode) -> None:
        """Only the node itself: one whose descendants are in use has no use of its own."""
        node.used, node.used_at_s = next(self._clock), time.time()

    def _evict(self, newest: PageNode) -> bool:
        """Get within the limit; False if the newest node had to go as well."""
        return self.nbytes <= self.limit_bytes or newest not in self._shrink()

    def _shrink(self) -> set[PageNode]:
        """Get within the limit, as far as nothing is held; what had to go, or gave something up."""
        changed, gone, again = set[PageNode](), set[PageNode](), list[tuple[Age, int, PageNode]]()
        numbers = itertools.count()  # nodes are not compared
        for node in self._oldest(again):
            if self.nbytes <= self.limit_bytes:
                break
            if node in gone or not self._can_go(node):
                continue
            changed.add(node)
            if node.children:
                self._replace(node, self._lighter(node))
            else:
                gone.add(node)
                self._drop(node)
            # Of it there may be more to take; of its parent too: it may be a leaf now, or has one child left,
            # or what it kept is not seen from there any more.
            for asked in (node, node.parent):
                if asked is not None and asked.parent is not None and asked not in gone:
                    heapq.heappush(again, (self._age(asked), next(numbers), asked))
        return changed

    def _oldest(self, again: "list[tuple[Age, int, PageNode]]") -> Iterator[PageNode]:
        """All nodes in the order of eviction, put in order once however many go; among them those that are to
        be asked again, a heap that may grow meanwhile.
        """
        for node in sorted(self._trie, key=self._age):
            while again and again[0][0] < self._age(node):
                yield heapq.heappop(again)[-1]
            yield node
        while again:
            yield heapq.heappop(again)[-1]

    def _drop(self, leaf: PageNode) -> None:
        self._trie.remove(leaf)
        self.nbytes -= page_bytes(leaf.page)
        self._changed.pop(leaf, None)
        self._light.discard(leaf)

    def _age(self, node: PageNode) -> Age:
        """The order of eviction. First a leaf left over from a cut, at whose end no fold is known: no
        sequence can start there.
        """
        of_use = bool(node.children) or all(node.page[i] is not None for i in self._folds)
        return of_use, node.used, -node.stop

    def _can_go(self, node: PageNode) -> bool:
        if node.pins or len(node.children) > 1 or (node.children and node in self._light):
            return False
        if node.children and self._lighter(node) is node.page:
            self._light.add(node)  # not to be asked again at every eviction
            return False
        return True

    def _lighter(self, node: PageNode) -> Page:
        (child,) = node.children.values()
        return lightened(self.layout, node.page, child.page)
