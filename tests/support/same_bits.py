"""One sequence read in many ways: alone, cut, in company, with drafts that are rejected."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from runtime.cache.build import build_memory
from runtime.loaded import LoadedModel
from runtime.nn.positions.rope_spec import long_after
from runtime.step import Adapters, Inputs, Step

Row = Sequence[int]
Carried = Callable[[int], Adapters | None]
"""The adapters of so many rows, of which the looked at one is alone or between two others."""


def nothing(_rows: int) -> None:
    return None


class Batch:
    """Rows of tokens, fed in steps; what was computed for each token that stayed, float32 [T, V] per row."""

    def __init__(self, model: LoadedModel, rows: Sequence[Row], carried: Carried = nothing) -> None:
        self._model, self._adapters = model, carried(len(rows))
        self._rows = rows
        self._lengths = [0] * len(rows)
        border = long_after(model.described.config)
        self._long = None if border is None else tuple(len(row) > border for row in rows)
        self._memory: Any = build_memory(model.described.layout, rows=len(rows), dtype=model.dtype)
        self._out: list[list[np.ndarray]] = [[] for _ in rows]

    def feed(self, counts: Sequence[int], drafts: int = 0) -> None:
        """The next counts[b] tokens of each row, and behind them `drafts` wrong ones that are taken back."""
        tokens = [
            [*row[at : at + count], *((token + 7) % 50 + 1 for token in row[:drafts])]
            for row, at, count in zip(self._rows, self._lengths, counts, strict=True)
        ]
        width = max(map(len, tokens))
        ids = mx.array([row + [0] * (width - len(row)) for row in tokens])
        starts, counts_of = tuple(self._lengths), tuple(map(len, tokens))
        step = Step(starts, counts_of, long=self._long, inputs=Inputs(ids), adapters=self._adapters)
        self._memory.prepare(step)
        logits = np.array(self._model.network.logits(self._model.network(step, self._memory), step))
        self._memory.commit(step, tuple(counts))
        for place, count in enumerate(counts):
            self._out[place].append(logits[place, :count])
            self._lengths[place] += count

    def answers(self) -> list[np.ndarray]:
        return [np.concatenate(parts) for parts in self._out]


def one_by_one(model: LoadedModel, row: Row, carried: Carried = nothing) -> np.ndarray:
    batch = Batch(model, [row], carried)
    for _ in row:
        batch.feed([1])
    return batch.answers()[0]


def at_once(model: LoadedModel, row: Row, carried: Carried = nothing) -> np.ndarray:
    batch = Batch(model, [row], carried)
    batch.feed([len(row)])
    return batch.answers()[0]


def in_chunks(
    model: LoadedModel, row: Row, carried: Carried = nothing, widths: Sequence[int] = (5, 2, 3)
) -> np.ndarray:
    batch, left, turn = Batch(model, [row], carried), len(row), 0
    while left:
        width = min(widths[turn % len(widths)], left)
        batch.feed([width])
        left, turn = left - width, turn + 1
    return batch.answers()[0]


def in_company(model: LoadedModel, row: Row, carried: Carried = nothing) -> np.ndarray:
    """With two other rows, one of which is behind and one ahead: ragged steps, then one token each."""
    others = [[(3 * token + 1) % 50 + 1 for token in row], [*row[4:], *row[:4]]]
    batch = Batch(model, [others[0], row, others[1]], carried)
    batch.feed([3, 7, 5])
    for _ in range(len(row) - 7):
        batch.feed([1, 1, 1])
    return batch.answers()[1]


def with_rejected_drafts(model: LoadedModel, row: Row, carried: Carried = nothing) -> np.ndarray:
    batch, left, turn = Batch(model, [row], carried), len(row), 0
    while left:
        count = min(1 + turn % 3, left)
        batch.feed([count], drafts=(turn % 2) * 3 + 1)
        left, turn = left - count, turn + 1
    return batch.answers()[0]


WAYS = {
    "at once": at_once,
    "in chunks": in_chunks,
    "in company": in_company,
    "with rejected drafts": with_rejected_drafts,
}


def differing(model: LoadedModel, row: Row, carried: Carried = nothing) -> Iterator[str]:
    """What is not as it is one by one: a sentence for each way of reading."""
    alone = one_by_one(model, row, carried)
    spread = float(alone.std())
    for name, read in WAYS.items():
        got = read(model, row, carried)
        tokens = int((got != alone).any(axis=-1).sum())
        if tokens:
            most = float(np.abs(got - alone).max()) / spread
            yield f"{name}: {tokens} of {len(row)} tokens, by up to {most:.1e} of the spread"
