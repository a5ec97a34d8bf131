"""A small language model with the target's tokenizer as drafter.

Its memory follows the target's rows at its own pace: tokens that it has not read are read when it next
proposes, so a parked draft costs nothing.
"""

from collections.abc import Sequence

import mlx.core as mx

from runtime.cache.build import LayerMemory, build_memory
from runtime.cache.recurrent import RecurrentCache
from runtime.cache.snapshot import Snapshot
from runtime.loaded import LoadedModel
from runtime.speculate.chain import draw, within
from runtime.speculate.drafter import Proposal, Rows
from runtime.step import Step

# A row this far behind reads alone, in steps of CHUNK tokens; a shorter lag joins the common ragged step.
LAG, CHUNK = 8, 256


class ModelDrafter:
    """`limit` stays below the slack of layer memory, so that a whole proposal can be taken back."""

    def __init__(self, model: LoadedModel, *, vocab_size: int | None = None, limit: int = 12) -> None:
        """vocab_size: how many ids the target has; None: as many as the draft."""
        self.limit = limit
        self._model = model
        self._vocab_size = vocab_size or model.vocab_size
        self._memory: LayerMemory = build_memory(model.described.layout, dtype=model.dtype, slack=limit + 1)
        self._lengths = [0]
        self._marks: list[tuple[int, list[Snapshot | None]]] = []

    @property
    def nbytes(self) -> int:
        """Bytes of its layer memory."""
        return self._memory.nbytes

    def observe(self, step: Step, tokens: mx.array, hidden: mx.array, kept: Sequence[int]) -> None:
        """Nothing to do: `propose` is given all ids."""

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        if max(len(ids) for ids in rows.ids) + depth > self._model.context_length:
            return None
        self._catch_up(rows)
        hidden = self._read(rows)
        self._marks = [
            (length, self._checkpoint(row)) for row, length in enumerate(self._lengths[: len(rows)])
        ]
        drawn = [draw(rows, self._logits(hidden), [])]
        for _ in range(1, depth):
            hidden = self._step(drawn[-1], (1,) * len(rows), 0)
            drawn.append(draw(rows, self._logits(hidden), drawn))
        return Proposal(mx.concatenate(drawn, axis=1), (depth,) * len(rows))

    def settle(self, lengths: Sequence[int]) -> None:
        for row, length in enumerate(lengths):
            self._cut(row, length)
        self._marks = []

    def move(self, src: int, dst: int) -> None:
        self._memory.move(src, dst)
        self._lengths[dst], self._lengths[src] = self._lengths[src], 0

    def clear(self, row: int) -> None:
        self._memory.clear(row)
        self._lengths[row] = 0

    def resize(self, rows: int) -> None:
        self._memory.resize(rows)
        self._lengths = (self._lengths + [0] * rows)[:rows]

    def _catch_up(self, rows: Rows) -> None:
        """Read rows that lag far behind, each alone, up to a lag that all can read together."""
        for row, ids in enumerate(rows.ids):
            while len(ids) - self._lengths[row] > LAG:
                start = self._lengths[row]
                part = ids[start : min(start + CHUNK, len(ids) - 1)]
                self._step(mx.array([part], dtype=mx.int32), (len(part),), row)
                self._memory.evaluate()

    def _read(self, rows: Rows) -> mx.array:
        """Read what is left of every row in one ragged step; hidden states [n, 1, D] of the newest tokens."""
        unread = [list(ids[length:]) for ids, length in zip(rows.ids, self._lengths, strict=False)]
        width = max(map(len, unread))
        tokens = mx.array([part + [0] * (width - len(part)) for part in unread], dtype=mx.int32)
        hidden = self._step(tokens, tuple(map(len, unread)), 0)
        last = mx.array([len(part) - 1 for part in unread])
        return hidden[mx.arange(len(unread)), last][:, None]

    def _step(self, tokens: mx.array, counts: tuple[int, ...], first: int) -> mx.array:
        step = Step(starts=tuple(self._lengths[first : first + len(counts)]), counts=counts, first=first)
        self._memory.prepare(step)
        # An id that only the target has gets a wrong embedding, which costs a draft and nothing else.
        known = mx.minimum(tokens, self._model.vocab_size - 1)
        hidden = self._model.network(known, step, self._memory)
        self._memory.commit(step, counts)
        for row, count in zip(step.rows, counts, strict=True):
            self._lengths[row] += count
        return hidden

    def _logits(self, hidden: mx.array) -> mx.array:
        return within(self._model.network.logits(hidden), self._vocab_size)

    def _checkpoint(self, row: int) -> list[Snapshot | None]:
        """The state of folds, which cannot be cut; None for memory that can."""
        return [
            cache.snapshot(row, 0) if isinstance(cache, RecurrentCache) else None
            for cache in self._memory.caches
        ]

    def _cut(self, row: int, length: int) -> None:
        """Forget what lies beyond `length`; folds go back to where drafting began, and read again from
        there.
        """
        if self._lengths[row] <= length:
            return
        mark, states = self._marks[row] if row < len(self._marks) else (0, [])
        if any(state is not None for state in states):
            length = mark
        for cache, state in zip(self._memory.caches, states, strict=True):
            if state is None:
                cache.remove(row, length, self._lengths[row])
            else:
                cache.restore(row, [state], length)
        self._lengths[row] = length
