"""A block diffusion draft (DFlash): all tokens of a proposal from one pass over a block of masks.

It reads its target's hidden states after a few layers (`Taps`), noted as they go by and read in one forward
pass when they are wanted, or when FLUSH tokens of a row wait; so a draft that is not asked costs little. The
block itself is written behind what is remembered and never committed.

Invariants, per row: memory holds the `read` tokens from position `base` on, the next ones wait in `runs`, and
`stop` is the position behind them. What an earlier row left in the store is not read again. A row whose past
is known to the target and not here starts where it was first observed: positions in memory count from there,
which rotary embeddings do not notice, and it leaves nothing in the store.
Source: Chen et al., DFlash (arXiv 2602.06036).
"""

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import mlx.core as mx

from runtime.cache.budget import Budget
from runtime.cache.trie import Keys, in_namespace
from runtime.loaded import LoadedModel
from runtime.models.registry.described import Described
from runtime.records import dataclass
from runtime.speculate.chain import DraftChain
from runtime.speculate.drafter import Proposal, Rows, own_memory, pass_cost
from runtime.speculate.lines import Lines, padded
from runtime.step import Inputs, Step
from runtime.trunks.taps import taps_of

if TYPE_CHECKING:
    from runtime.models.dflash_config import Config

FLUSH = 256
SPACING = 128  # least distance, in tokens, of the places in a prompt where memory that cannot be cut is paged


def is_block_draft(draft: Described) -> bool:
    return draft.family.drafts_as == "block"


@dataclass(frozen=True, slots=True)
class _Run:
    """Tokens [start, stop) of one row of a step."""

    states: mx.array
    """[B, L, n * D]: those of the whole step."""
    place: int
    """The row's."""
    start: int
    stop: int

    @property
    def count(self) -> int:
        return self.stop - self.start

    @property
    def own(self) -> mx.array:
        return self.states[self.place : self.place + 1, self.start : self.stop]

    def cut(self, count: int) -> "tuple[_Run, _Run]":
        at = self.start + count
        return _Run(self.states, self.place, self.start, at), _Run(self.states, self.place, at, self.stop)


@dataclass(slots=True, eq=False)
class _Line:
    """One row, see above."""

    prompt: Sequence[int] = ()
    """What its sequence began with."""
    space: str = ""
    """What sets the target's states apart."""
    base: int = 0
    read: int = 0
    stop: int = 0
    runs: list[_Run] = field(default_factory=list[_Run])

    @property
    def waiting(self) -> int:
        return sum(run.count for run in self.runs)

    def keys(self, ids: Sequence[int]) -> Keys:
        """Of the store."""
        return in_namespace(tuple(ids), self.space)

    def take(self, count: int) -> mx.array:
        """States [1, count, n * D] of the first that wait, which they then do no more."""
        taken: list[mx.array] = []
        while count:
            run = self.runs.pop(0)
            if run.count > count:
                run, rest = run.cut(count)
                self.runs.insert(0, rest)
            taken.append(run.own)
            count -= run.count
        return mx.concatenate(taken, axis=1)


class BlockDrafter(Lines[_Line]):
    """`limit` stays below the slack of layer memory, so that a whole proposal can be taken back.

    budget: what its memory counts in. ahead: an entry of it looks at no token but its own.
    """

    ahead = 0

    def __init__(
        self, draft: LoadedModel, target: LoadedModel, *, limit: int = 15, budget: Budget | None = None
    ) -> None:
        config: Config = draft.described.config
        taps = taps_of(target.network)
        assert taps is not None, "pair_problem was not asked"
        taps.tap(config.target_layers)
        self.limit = min(limit, config.block - 1)
        whole = pass_cost(draft.weight_bytes, len(draft.described.layout), target)
        self.token_cost = whole / config.block  # one pass makes a whole block
        self._draft, self._target, self._taps, self._config = draft, target, taps, config
        memory = own_memory(draft.described.layout, draft.dtype, limit=self.limit, budget=budget)
        super().__init__(memory, _Line, spacing=SPACING)

    def begin(self, row: int, ids: Sequence[int], space: str = "") -> None:
        line = self._lines[row] = _Line(tuple(ids), space)
        if self._sharing is not None:
            keys = line.keys(line.prompt)
            match = self._sharing.store.lookup(keys)
            line.read = line.stop = self._sharing.begin(line, row, keys, match)

    def end(self, row: int, ids: Sequence[int]) -> None:
        line = self._lines[row]
        if self._sharing is not None and line in self._sharing and line.stop == len(ids):
            self._flush(row)
            self._sharing.end(line, row, line.keys(tuple(ids)))

    def observe(self, step: Step, hidden: mx.array, kept: Sequence[int]) -> None:
        states = self._taps.tapped(step, self._config.target_layers)
        if step.width > 1:
            # Nobody else may want what the last layers make of a prompt. Left lazy, it would hold a view of
            # the target's memory, and its next write would copy all of it.
            mx.async_eval(states)
        for place, (row, start, count) in enumerate(zip(step.rows, step.starts, kept, strict=True)):
            line = self._lines[row]
            if start > line.stop:
                self.clear(row)
                line = self._lines[row] = _Line(base=start, stop=start)
            known = min(line.stop - start, count)
            if known < count:
                line.stop = start + count
                line.runs.append(_Run(states, place, known, count))
            if line.waiting > FLUSH:
                self._flush(row)

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        self._catch_up(rows)
        masks = [self._config.mask_token] * depth
        block = mx.array([[ids[-1], *masks] for ids in rows.ids], dtype=mx.int32)
        embedded = self._target.network.model.embed_tokens(block) * self._config.embed_scale
        lengths = tuple(line.read for line in self._lines[: len(rows)])
        inputs = Inputs(block, embedded.astype(self._draft.dtype))
        step = Step(lengths, (depth + 1,) * len(rows), inputs=inputs)
        self.memory.prepare(step)
        hidden = self._draft.network(step, self.memory)
        chain = DraftChain(rows)
        chain.draw(self._target.network.logits(hidden[:, 1:].astype(self._target.dtype)))
        return Proposal(chain.tokens, (depth,) * len(rows), odds=chain.odds)

    def settle(self, lengths: Sequence[int]) -> None:
        """Nothing to do: a block is never committed."""

    def _catch_up(self, rows: Rows) -> None:
        """Read all that waits: in one ragged step where something of every row does, and nothing is paged."""
        lines = self._lines[: len(rows)]
        assert all(line.stop == len(ids) - 1 for line, ids in zip(lines, rows.ids, strict=True)), (
            "what the target reads must be observed"
        )
        for row, line in enumerate(lines):
            if self._readable(line) < line.waiting:
                self._flush(row)
        counts = tuple(line.waiting for line in lines)
        if all(counts):
            pairs, width = zip(lines, counts, strict=True), max(counts)
            self._read(mx.concatenate([padded(line.take(n), width) for line, n in pairs]), counts, 0)
            return
        for row, (line, count) in enumerate(zip(lines, counts, strict=True)):
            if count:
                self._read(line.take(count), (count,), row)

    def _readable(self, line: _Line) -> int:
        """How much of what waits can be read at once: up to a place where memory is to be paged."""
        if self._sharing is None:
            return line.waiting
        return self._sharing.chunk(line, line.read, line.waiting)

    def _flush(self, row: int) -> None:
        """Read what waits of one row."""
        line = self._lines[row]
        while line.waiting:
            count = self._readable(line)
            self._read(line.take(count), (count,), row)
            if self._sharing is not None:
                self.memory.evaluate()
                self._sharing.reached(line, row, line.keys(line.prompt[: line.read]))
        mx.async_eval([array for cache in self.memory.caches for array in cache.arrays])

    def _read(self, states: mx.array, counts: tuple[int, ...], first: int) -> None:
        """Remember states [B, L, n * D] of neighbouring rows, behind those in memory."""
        lines = self._lines[first : first + len(counts)]
        inputs = Inputs(embeddings=states.astype(self._draft.dtype))
        step = Step(tuple(line.read for line in lines), counts, first, inputs=inputs)
        self.memory.prepare(step)
        self._draft.network.read(step, self.memory)
        self.memory.commit(step, counts)
        for line, count in zip(lines, counts, strict=True):
            line.read += count
