"""A draft head that came inside the target's own file (Qwen 3.5 and kin, DeepSeek V3, GLM 4.5).

It reads pairs: slot S is the target's hidden state at position S beside the token at S + 1, and predicts the
token at S + 2. What the target computes is noted as it goes by (`observe`) and read in one forward pass when
it is wanted, or when FLUSH tokens of a row wait; so a parked head costs next to nothing. Further drafts feed
on the head's own output in place of the target's hidden state.

Pairs are kept for other rows too, under keys that are pairs of tokens: slot S belongs to the tokens at S and
S + 1. A row that the target has put at `start` from its own store needs `start` pairs; where the last of them
is not known, since another token followed, the hidden state that it begins with may be: ends of rows and of
chunks leave theirs behind. Otherwise the row starts where it was first seen: positions in memory count from
there, which rotary embeddings do not notice, and nothing is kept of it.

Invariants, per row: memory holds the `read` first pairs as the target made them, and behind them whatever the
last proposal guessed, which is forgotten before anything true is read.
Source: DeepSeek-V3 (arXiv 2412.19437), section 2.2; EAGLE (2401.15077) for feeding on its own output.
"""

from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise

import mlx.core as mx

from runtime.cache.budget import Budget
from runtime.cache.trie import Keys, in_namespace
from runtime.loaded import LoadedModel
from runtime.records import dataclass
from runtime.speculate.chain import DraftChain
from runtime.speculate.drafter import Proposal, Rows, own_memory, pass_cost
from runtime.speculate.lines import Lines, padded
from runtime.step import Inputs, Step

FLUSH = 256
TAILS = 64  # hidden states that the next pair may begin with


@dataclass(frozen=True, slots=True)
class _Run:
    """Tokens of one row of a step, with the target's hidden states."""

    hidden: mx.array
    tokens: mx.array
    place: int
    """The row's."""
    count: int
    """How many tokens."""

    def part(self, array: mx.array) -> mx.array:
        return array[self.place : self.place + 1, : self.count]


@dataclass(slots=True, eq=False)
class _Line:
    """One row as the head knows it."""

    stop: int = 0
    """The position after the last observed one."""
    read: int = 0
    """Pairs in memory that are true."""
    held: int = 0
    """All pairs in memory, proposed ones too."""
    runs: list[_Run] = field(default_factory=list[_Run])
    """Observed and not read yet."""
    prompt: tuple[int, ...] = ()
    """The ids that the row began with."""
    space: str = ""
    """What sets its hidden states apart."""
    whole: bool = True
    """Slots in memory are positions."""

    @property
    def waiting(self) -> int:
        return sum(run.count for run in self.runs)

    def take(self) -> tuple[mx.array, mx.array]:
        """Hidden states [1, W, D] and tokens [1, W] of all W that wait, which they then do no more."""
        hidden = [run.part(run.hidden) for run in self.runs]
        tokens = [run.part(run.tokens) for run in self.runs]
        self.runs = []
        return mx.concatenate(hidden, axis=1), mx.concatenate(tokens, axis=1)


class HeadDrafter(Lines[_Line]):
    """Drafts with `target.head`, which must be there."""

    ahead = 1

    def __init__(self, target: LoadedModel, *, limit: int = 8, budget: Budget | None = None) -> None:
        assert target.head is not None
        self.limit = limit
        self.token_cost = pass_cost(target.head.weight_bytes, len(target.head.layout), target)
        memory = own_memory(target.head.layout, target.dtype, limit=limit, budget=budget)
        super().__init__(memory, _Line, spacing=FLUSH)
        self._target, self._head = target.network, target.head.network
        self._tails: dict[int, mx.array] = {}

    def begin(self, row: int, ids: Sequence[int], space: str = "") -> None:
        self._lines[row].prompt, self._lines[row].space = tuple(ids), space

    def end(self, row: int, ids: Sequence[int]) -> None:
        line, read = self._lines[row], tuple(ids)
        if self._sharing is None or not line.whole or not line.runs or line.stop != len(read):
            return
        self._forget(row)
        if line.waiting > 1:
            self._flush(row)
        self._leave_tail(line, read, line.runs[-1])
        keys = _pairs(read, line.space)[: line.read]
        if keys and line not in self._sharing:
            self._sharing.begin(line, row, keys, self._sharing.store.lookup(()))
        self._sharing.end(line, row, keys)

    def observe(self, step: Step, hidden: mx.array, kept: Sequence[int]) -> None:
        if step.width > 1:
            # A prompt's hidden states are not wanted by the engine. Left lazy, they would hold a view of the
            # target's memory, and its next write would copy all of it.
            mx.async_eval(hidden)
        for place, (row, start, count) in enumerate(zip(step.rows, step.starts, kept, strict=True)):
            if start != self._lines[row].stop:
                self._enter(row, start)
            line = self._lines[row]
            line.stop = start + count
            if count:
                line.runs.append(_Run(hidden, step.ids, place, count))
            if step.width > 1 and line.stop <= len(line.prompt) and self._sharing is not None:
                self._leave_tail(line, line.prompt[: line.stop], line.runs[-1])
            if line.waiting > FLUSH:
                self._flush(row)

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        hidden = self._catch_up(rows)
        chain = DraftChain(rows)
        token = chain.draw(self._target.logits(hidden))
        for _ in range(1, depth):
            hidden = self._step(hidden, token, (1,) * len(rows), 0)
            token = chain.draw(self._target.logits(hidden))
        return Proposal(chain.tokens, (depth,) * len(rows), odds=chain.odds)

    def settle(self, lengths: Sequence[int]) -> None:
        """Nothing to do: what was guessed is forgotten before the next pair is read."""

    def move(self, src: int, dst: int) -> None:
        self._forget(src)
        super().move(src, dst)

    def _enter(self, row: int, start: int) -> None:
        """The row's first `start` tokens are not observed: take over what is known of them."""
        prompt, space = self._lines[row].prompt, self._lines[row].space
        self.clear(row)
        line = self._lines[row] = _Line(stop=start, prompt=prompt, space=space, whole=False)
        if self._sharing is None or not 0 < start < len(prompt):
            return
        keys, tail = _pairs(prompt, space), self._tails.get(hash((space, prompt[:start])))
        match = self._sharing.store.lookup((*keys[:start], None))
        if match.offset < start and tail is not None:
            match = self._sharing.store.lookup(keys[:start])
        if match.offset < start - (tail is not None):
            return
        line.read = line.held = self._sharing.begin(line, row, keys, match)
        line.whole = line.read == match.offset
        if line.read < start and line.whole and tail is not None:
            line.runs = [_Run(tail, mx.array([[prompt[start - 1]]], dtype=mx.int32), 0, 1)]

    def _leave_tail(self, line: _Line, ids: tuple[int, ...], run: _Run) -> None:
        """What the next pair after these tokens begins with, whoever reads on from here."""
        tail = mx.contiguous(run.part(run.hidden)[:, -1:])
        mx.async_eval(tail)
        self._tails.pop(key := hash((line.space, ids)), None)
        self._tails[key] = tail
        if len(self._tails) > TAILS:
            del self._tails[next(iter(self._tails))]

    def _catch_up(self, rows: Rows) -> mx.array:
        """Read all that waits in one ragged step; hidden states [n, 1, D] of each row's newest pair."""
        lines = self._lines[: len(rows)]
        for row, (line, ids) in enumerate(zip(lines, rows.ids, strict=True)):
            assert line.stop == len(ids) - 1, "what the target reads must be observed"
            self._forget(row)
        counts = tuple(line.waiting for line in lines)
        width = max(counts)
        hidden = mx.concatenate([padded(line.take()[0], width) for line in lines])
        tokens = [
            list(ids[-count:]) + [0] * (width - count) for ids, count in zip(rows.ids, counts, strict=True)
        ]
        out = self._step(hidden, mx.array(tokens, dtype=mx.int32), counts, 0)
        for line in lines:
            line.read = line.held
        last = mx.array([count - 1 for count in counts])
        return out[mx.arange(len(counts)), last][:, None]

    def _flush(self, row: int) -> None:
        """Read what waits of one row, but for the last hidden state: its token is not known yet."""
        line = self._lines[row]
        self._forget(row)
        hidden, tokens = line.take()
        self._step(hidden[:, :-1], tokens[:, 1:], (hidden.shape[1] - 1,), row)
        line.read = line.held
        line.runs = [_Run(mx.contiguous(hidden[:, -1:]), tokens[:, -1:], 0, 1)]
        mx.async_eval(line.runs[0].hidden, *(array for cache in self.memory.caches for array in cache.arrays))

    def _step(self, hidden: mx.array, tokens: mx.array, counts: tuple[int, ...], first: int) -> mx.array:
        """The head over pairs [B, L] of neighbouring rows, behind those in memory: states [B, L, D]."""
        lines = self._lines[first : first + len(counts)]
        inputs = Inputs(tokens, self._target.model.embed_tokens(tokens))
        step = Step(tuple(line.held for line in lines), counts, first, inputs=inputs)
        self.memory.prepare(step)
        out = self._head(step, self.memory, hidden)
        self.memory.commit(step, counts)
        for line, count in zip(lines, counts, strict=True):
            line.held += count
        return out

    def _forget(self, row: int) -> None:
        """Back to the true pairs."""
        line = self._lines[row]
        line.held = self.memory.rewind(row, line.read)
        assert line.held == line.read, "a head's layers can all be cut"


def _pairs(ids: Sequence[int], space: str) -> Keys:
    """Keys of the store."""
    return in_namespace(tuple(pairwise(ids)), space)
