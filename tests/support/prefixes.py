"""Rows over one store of prefixes, each step checked against an oracle."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import mlx.core as mx

from runtime.cache.build import build_memory
from runtime.cache.layout import Chunked, Encoder, Full, LayerSpec, Rotating, Shared, Stateless
from runtime.cache.memory import LayerMemory
from runtime.cache.prefix import PrefixStore
from runtime.cache.restore import Restoring
from runtime.cache.trie import Node
from runtime.step import Step
from tests.support.invariants import check_tree
from tests.support.oracle import HEADS, RECURRENT, SIZE, Row, expected, held, run

FULL: tuple[LayerSpec, ...] = (Full(HEADS, SIZE), Shared(0), Stateless(), Full(HEADS, SIZE, value_dim=0))
WINDOWED: tuple[LayerSpec, ...] = (
    Full(HEADS, SIZE),
    Rotating(HEADS, SIZE, window=6),
    Chunked(HEADS, SIZE, chunk=5),
)
MIXED: tuple[LayerSpec, ...] = (*WINDOWED[:2], Stateless(), RECURRENT, Encoder(HEADS, SIZE), Shared(1))
LAYOUTS = {"full": FULL, "windowed": WINDOWED, "mixed": MIXED, "recurrent": (RECURRENT,)}
SLACK = 3
ROOMY = 1 << 40


@dataclass
class Machine:
    """Rows over one store. A row is read in steps, and paged after each."""

    layout: Sequence[LayerSpec]
    limit_bytes: int = ROOMY
    rows: int = 2
    inserted: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])

    def __post_init__(self) -> None:
        self.memory: LayerMemory = build_memory(self.layout, rows=self.rows, slack=SLACK, grain=4)
        self.store = PrefixStore(self.layout, self.limit_bytes)
        self.tokens: list[list[int]] = [[] for _ in range(self.rows)]
        self.kept = [0] * self.rows
        self.held: list[Node | None] = [None] * self.rows

    def begin(self, row: int, prompt: Sequence[int]) -> int:
        """Put the row where the store knows `prompt` from; returns the offset."""
        self.drop(row)
        match = self.store.lookup(prompt)
        restoring = Restoring(self.memory, match.pages, match.offset)
        if match.offset % 2:
            restoring.go_on(row)
        restoring.finish(row)
        self.tokens[row], self.kept[row] = list(prompt[: match.offset]), match.offset
        self.held[row] = match.node
        self.store.hold(match.node)
        self.check_row(row)
        return match.offset

    def read(self, row: int, tokens: Sequence[int], *, page: bool = True) -> None:
        """One step of the row, every query checked; then a page of all since the last."""
        start = len(self.tokens[row])
        step = Step((start,), (len(tokens),), row)
        self.tokens[row] = [*self.tokens[row], *tokens]
        wanted = self.row(row)
        for spec, cache in zip(self.layout, self.memory, strict=True):
            if cache is not None and not isinstance(spec, Shared):
                assert run(spec, cache, step, [tokens])[0] == expected(spec, wanted, start, len(tokens))
        self.memory.commit(step, step.counts)
        self.memory.evaluate()
        if page:
            self.page(row)

    def page(self, row: int) -> None:
        keys = tuple(self.tokens[row])
        node = self.store.insert(keys, self.kept[row], self.memory.snapshot(row, self.kept[row]))
        mx.eval(self.store.changed())
        if node is not None:
            self.inserted.append(keys)
            self.store.hold(node)
            old, self.held[row], self.kept[row] = self.held[row], node, len(keys)
            if old is not None:
                self.store.release(old)
        check_tree(self.store)

    def drop(self, row: int) -> None:
        node, self.held[row] = self.held[row], None
        if node is not None:
            self.store.release(node)
        self.memory.clear(row)
        self.tokens[row], self.kept[row] = [], 0

    def row(self, row: int) -> Row:
        tokens = self.tokens[row]
        return Row(tokens, tokens[0] if tokens else None)

    def check_row(self, row: int) -> None:
        """What the row holds is what having read its tokens leaves behind."""
        length = len(self.tokens[row])
        if not length:
            return
        step = Step((length - 1,), (1,), row)
        for spec, cache in zip(self.layout, self.memory, strict=True):
            if cache is not None and not isinstance(spec, Shared):
                assert cache.lengths[row] == length
                assert held(spec, cache, step) == expected(spec, self.row(row), length - 1, 1)[0]

    def conversation(self, row: int, prompt: Sequence[int], marks: Sequence[int] = ()) -> int:
        """Read a prompt with pages at `marks` and at its end; returns the offset it began at."""
        offset = self.begin(row, prompt)
        for start, stop in pairwise([offset, *(m for m in marks if offset < m < len(prompt)), len(prompt)]):
            self.read(row, prompt[start:stop])
        return offset
