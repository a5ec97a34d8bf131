"""Plays the engine for a drafter, one call at a time, so that its proposals can be compared."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
from hypothesis import strategies as st

from runtime.cache.build import build_memory
from runtime.cache.memory import LayerMemory
from runtime.loaded import LoadedModel
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler
from runtime.speculate.drafter import Drafter, Rows
from runtime.step import Inputs, Step

Action = tuple[Any, ...]
"""A method of Bench that changes rows, and what it is called with."""


class Bench:
    """A target, its memory and a drafter, over rows whose ids are the drafts that were kept, and random."""

    def __init__(self, target: LoadedModel, make: Callable[[LayerMemory], Drafter], rows: int) -> None:
        self.target = target
        self.memory: LayerMemory = build_memory(target.described.layout, rows=rows)
        self.drafter = make(self.memory)
        self.drafter.resize(rows)
        self.rows = rows
        self.ids: list[list[int]] = []
        self.rng = np.random.default_rng(0)

    def token(self) -> int:
        return int(self.rng.integers(3, 150))

    def step(self, parts: list[list[int]], starts: list[int], kept: list[int], first: int = 0) -> None:
        counts = tuple(map(len, parts))
        tokens = mx.array([part + [0] * (max(counts) - len(part)) for part in parts], dtype=mx.int32)
        step = Step(starts=tuple(starts), counts=counts, first=first, inputs=Inputs(tokens))
        self.memory.prepare(step)
        hidden = self.target.network(step, self.memory)
        self.memory.commit(step, kept)
        self.drafter.observe(step, hidden, kept)

    def admit(self, length: int, chunk: int) -> None:
        ids = [self.token() for _ in range(length)]
        for start in range(0, length, chunk):
            part = ids[start : start + chunk]
            self.step([part], [start], [len(part)], len(self.ids))
        self.ids.append([*ids, self.token()])

    def decode(self) -> None:
        self.step([[ids[-1]] for ids in self.ids], [len(ids) - 1 for ids in self.ids], [1] * len(self.ids))
        for ids in self.ids:
            ids.append(self.token())

    def speculate(self, depth: int, keep: int) -> list[list[int]]:
        rows = Rows(self.ids, Sampler([SamplingParams(temperature=0)] * len(self.ids)))
        proposal = self.drafter.propose(rows, depth)
        assert proposal is not None
        drafts: Any = proposal.tokens.tolist()
        starts = [len(ids) - 1 for ids in self.ids]
        kept = [1 + (keep + row) % (depth + 1) for row in range(len(self.ids))]
        parts = [[ids[-1], *draft] for ids, draft in zip(self.ids, drafts, strict=True)]
        self.step(parts, starts, kept)
        self.drafter.settle([start + count for start, count in zip(starts, kept, strict=True)])
        for ids, draft, count in zip(self.ids, drafts, kept, strict=True):
            ids += [*draft[: count - 1], self.token()]
        return drafts

    def leave(self, row: int) -> None:
        last = len(self.ids) - 1
        self.ids[row] = self.ids[last]
        self.ids.pop()
        for place in (self.memory, self.drafter):
            place.clear(row)
            if row != last:
                place.move(last, row)

    def play(self, actions: Iterable[Action]) -> Iterator[tuple[list[int], int, list[int]]]:
        """Those that can be done at their time; of each draft the ids before it, its depth, what it says."""
        for action, *arguments in actions:
            if action == "admit" and len(self.ids) < self.rows:
                self.admit(*arguments)
            elif action == "leave" and arguments[0] < len(self.ids):
                self.leave(*arguments)
            elif action == "decode" and self.ids:
                self.decode()
            elif action == "speculate" and self.ids:
                before = [list(ids) for ids in self.ids]
                for ids, draft in zip(before, self.speculate(*arguments), strict=True):
                    yield ids, arguments[0], draft


def actions_of(lengths: range, chunks: range, depths: range) -> st.SearchStrategy[Action]:
    """Any mixture of prompts, plain and speculative steps, rows that leave and places that change. lengths:
    of prompts; chunks: how many tokens of these are read at once.
    """
    return st.one_of(
        st.tuples(st.just("admit"), st.sampled_from(lengths), st.sampled_from(chunks)),
        st.tuples(st.just("decode")),
        st.tuples(st.just("speculate"), st.sampled_from(depths), st.integers(0, depths.stop - 1)),
        st.tuples(st.just("leave"), st.integers(0, 2)),
    )
