"""A small language model with the target's tokenizer as drafter.

Its memory follows the target's rows at its own pace: tokens that it has not read are read when it next
proposes, so a parked draft costs nothing. Then, too, a row first looks for what earlier ones left in the
prefix store. However long a prompt is, a proposal waits for CHUNK tokens of it at most: rows that lag behind
get their drafts later, the others at once.
"""

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx

from runtime.cache.budget import Budget
from runtime.cache.build import build_memory
from runtime.cache.memory import Mark
from runtime.cache.protocol import by_layout
from runtime.cache.trie import Keys, in_namespace
from runtime.loaded import LoadedModel
from runtime.nn.operations import ops
from runtime.nn.positions.rope_spec import long_after
from runtime.parts.decoder import decoder_parts_of
from runtime.parts.draws import GuessParams
from runtime.records import dataclass
from runtime.speculate.chain import DraftChain, within
from runtime.speculate.drafter import Audition, Proposal, Rows, own_memory
from runtime.speculate.lines import Lines
from runtime.step import Inputs, Step

# A row this far behind reads alone, CHUNK tokens at a time at most; a shorter lag joins the common step,
# where every row takes as much room as the one with most to read. The only row may bring more.
LAG, LAG_ALONE, CHUNK = 8, 64, 256


@dataclass(slots=True, eq=False)
class _Line:
    """One row as the draft model knows it."""

    length: int = 0
    """Tokens of it in memory."""
    found: bool = False
    """It has looked into the prefix store."""
    long: bool = False
    """It is read as a long sequence, as in `runtime.engine.prefixes`."""


class ModelDrafter(Lines[_Line]):
    """`limit` stays below the slack of layer memory, so that a whole proposal can be taken back."""

    ahead = 0

    def __init__(
        self,
        model: LoadedModel,
        *,
        vocab_size: int | None = None,
        limit: int = 12,
        token_cost: float = 0.2,
        budget: Budget | None = None,
    ) -> None:
        """vocab_size: how many ids the target has; None: as many as the draft."""
        self.limit, self.token_cost = limit, token_cost
        memory = own_memory(model.described.layout, model.dtype, limit=limit, budget=budget)
        super().__init__(memory, _Line, spacing=CHUNK)
        self._model = model
        self._vocab_size = vocab_size or model.vocab_size
        self._knows_all = self._vocab_size <= model.vocab_size
        self._network = decoder_parts_of(model.network)
        self._long_after = long_after(model.described.config)
        self._marks: list[tuple[Mark, ...]] = []  # of each row: where it may go back to

    def rehearse(self) -> None:
        """Kernels' views of weights are made when a graph is first built, which takes longer than a round of
        a small model. This one is dropped.
        """
        network = self._network if ops.by_kernels("guess") else None
        if network is not None:
            step = Step((0,), (1,), inputs=Inputs(mx.zeros((1, 1), mx.int32)))
            memory = build_memory(self._model.described.layout, dtype=self._model.dtype)
            memory.prepare(step)
            ops.table.guess(network, step, 1, by_layout(memory), GuessParams(None, None, (1,)))

    def begin(self, row: int, ids: Sequence[int], space: str = "") -> None:
        """Nothing to do: what is known of the row is looked up when it first counts."""

    def end(self, row: int, ids: Sequence[int]) -> None:
        self._cut(row, len(ids))
        if self._sharing is not None:
            line = self._lines[row]
            self._sharing.end(line, row, _keys(line, ids[: line.length]))

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        fits = [len(ids) + depth <= self._model.context_length for ids in rows.ids]
        if not any(fits):
            return None
        read, ready = self._catch_up(rows, fits)
        reading = read > 0 or self.behind(rows.ids)
        if not any(ready):
            return Proposal(mx.zeros((len(rows), depth), mx.int32), (0,) * len(rows), reading=True)
        before = [self.memory.mark(row) for row in range(len(rows))]
        if all(ready) and (tokens := self._at_once(rows, depth)) is not None:
            self._marks = [(mark,) for mark in before]
            return Proposal(tokens, (depth,) * len(rows), reading=reading)
        hidden = self._read(rows, ready)
        self._marks = [(mark, self.memory.mark(row)) for row, mark in enumerate(before)]
        chain = DraftChain(rows)
        token = chain.draw(self._logits(hidden))
        for _ in range(1, depth):
            hidden = self._step(token, (1,) * len(rows), 0)
            token = chain.draw(self._logits(hidden))
        for row, (_, mark) in enumerate(self._marks):
            if not ready[row]:
                self._cut(row, mark.length)
        counts = tuple(depth if is_ready else 0 for is_ready in ready)
        return Proposal(chain.tokens, counts, reading=reading, odds=chain.odds)

    def audition(self, rows: Rows, count: int) -> Audition | None:
        fits = [len(ids) <= self._model.context_length for ids in rows.ids]
        sampler = rows.sampler
        if not all(fits) or rows.ahead is not None or sampler.wants_history or sampler.wants_odds:
            return None
        before = replace(rows, ids=[ids[: max(len(ids) - count, 1)] for ids in rows.ids])
        _, ready = self._catch_up(before, fits)
        if not all(ready):
            return Audition(mx.zeros((len(rows), 0), mx.int32), (range(0),) * len(rows))
        known = replace(rows, ids=[ids[:-1] for ids in rows.ids])
        tokens, counts = self._unread(known, ready)
        if not all(counts):
            return None
        drawn, stops = self._at_once(known, None), counts
        if drawn is None:
            drawn, stops = self._drawn_last(known, tokens, counts, count), (count,) * len(rows)
        columns = [range(stop - min(count, own), stop) for stop, own in zip(stops, counts, strict=True)]
        return Audition(drawn, tuple(columns))

    def _drawn_last(self, known: Rows, tokens: mx.array, counts: tuple[int, ...], count: int) -> mx.array:
        """Behind the last `count` tokens of each row, int32 [n, count]; behind less, where there is less."""
        hidden = self._step(tokens, counts, 0)
        at = mx.array([[max(own - count + i, 0) for i in range(count)] for own in counts])
        logits = self._logits(hidden[mx.arange(len(counts))[:, None], at])
        return DraftChain(replace(known, ids=[ids[: len(ids) + 1 - count] for ids in known.ids])).draw(logits)

    def _at_once(self, rows: Rows, depth: int | None) -> mx.array | None:
        """All drafts as one operation, int32 [n, depth]; without a depth the tokens behind each that it has
        not read, [n, width]. None where there is no such operation.
        """
        network = self._network if ops.by_kernels("guess") else None
        if network is None or rows.ahead is not None or self._long_after is not None:
            return None
        tokens, counts = self._unread(rows, [True] * len(rows))
        starts = tuple(line.length for line in self._lines[: len(rows)])
        by = rows.sampler.plainly(
            [start + (1 if depth is None else own) for start, own in zip(starts, counts, strict=True)],
            rows.ids,
            starts if depth is None else map(len, rows.ids),
            ids=min(self._vocab_size, self._model.vocab_size),
        )
        if by is None:
            return None
        step = Step(starts, counts, inputs=Inputs(self._within_vocabulary(tokens)))
        held = Step(starts, tuple(count + depth - 1 for count in counts)) if depth else step
        self.memory.prepare(held)
        found = ops.table.guess(network, step, depth, by_layout(self.memory), by)
        if found is None:
            return None
        mx.async_eval(found.tokens)  # the device drafts while the host builds what judges the drafts
        self.memory.commit(held, held.counts)
        self._lengthen(0, held.counts)
        return found.tokens

    def behind(self, ids: Sequence[Sequence[int]]) -> bool:
        return any(len(row) - line.length > LAG for row, line in zip(ids, self._lines, strict=False))

    def settle(self, lengths: Sequence[int]) -> None:
        for row, length in enumerate(lengths):
            self._cut(row, length)
        self._marks = []

    def clear(self, row: int) -> None:
        self._restart(row)
        self._marks = []

    def resize(self, rows: int) -> None:
        super().resize(rows)
        self._marks = []

    def _restart(self, row: int) -> None:
        """It is read anew; what other rows may go back to stays."""
        super().clear(row)

    def _catch_up(self, rows: Rows, fits: Sequence[bool]) -> tuple[int, list[bool]]:
        """Read CHUNK tokens at most of rows that lag far behind, each alone, the least behind first: how many
        were read, and which rows can now read the rest together. Those that fit its context, that is.
        """
        for row, ids in enumerate(rows.ids):
            self._find(row, ids)
        lags = [len(ids) - line.length for ids, line in zip(rows.ids, self._lines, strict=False)]
        left, most = CHUNK, LAG if len(rows) > 1 else LAG_ALONE
        for row in sorted((row for row in range(len(rows)) if fits[row]), key=lags.__getitem__):
            left -= self._advance(row, rows.ids[row], left, most)
        ready = [
            fitting and len(ids) - line.length <= most
            for ids, line, fitting in zip(rows.ids, self._lines, fits, strict=False)
        ]
        return CHUNK - left, ready

    def _find(self, row: int, ids: Sequence[int]) -> None:
        """Put a row that was not asked for before where earlier ones left off; one that has become a long
        sequence begins anew.
        """
        long = self._long_after is not None and len(ids) > self._long_after
        if long and not self._lines[row].long:
            self._restart(row)
        line = self._lines[row]
        line.long = long
        if self._sharing is not None and not line.found:
            keys, line.found = _keys(line, ids), True
            line.length = self._sharing.begin(line, row, keys, self._sharing.store.lookup(keys))

    def _advance(self, row: int, ids: Sequence[int], most: int, lag: int) -> int:
        """Read until the row lags by so little, and has been paged where it should be; at most `most`."""
        line, read = self._lines[row], 0
        while read < most and (len(ids) - line.length > lag or self._is_marked(line, len(ids))):
            count = min(most - read, len(ids) - 1 - line.length)
            if self._sharing is not None:
                count = self._sharing.chunk(line, line.length, count)
            part = ids[line.length : line.length + count]
            self._step(mx.array([part], dtype=mx.int32), (count,), row)
            self.memory.evaluate()
            if self._sharing is not None:
                self._sharing.reached(line, row, _keys(line, ids[: line.length]))
            read += count
        return read

    def _is_marked(self, line: _Line, stop: int) -> bool:
        mark = None if self._sharing is None else self._sharing.next_mark(line, line.length)
        return mark is not None and mark < stop

    def _read(self, rows: Rows, ready: Sequence[bool]) -> mx.array:
        """Read what is left of every row in one ragged step; hidden states [n, 1, D] of the newest tokens.

        A step needs tokens of all its rows: those that are not ready read their next one.
        """
        tokens, counts = self._unread(rows, ready)
        hidden = self._step(tokens, counts, 0)
        last = mx.array([count - 1 for count in counts])
        return hidden[mx.arange(len(counts)), last][:, None]

    def _unread(self, rows: Rows, ready: Sequence[bool]) -> tuple[mx.array, tuple[int, ...]]:
        """int32 [n, width] and how many there are of each row."""
        unread = [
            list(ids[line.length :] if is_ready else ids[line.length : line.length + 1])
            for ids, line, is_ready in zip(rows.ids, self._lines, ready, strict=False)
        ]
        width = max(map(len, unread))
        tokens = mx.array([part + [0] * (width - len(part)) for part in unread], dtype=mx.int32)
        return tokens, tuple(map(len, unread))

    def _step(self, tokens: mx.array, counts: tuple[int, ...], first: int) -> mx.array:
        lines = self._lines[first : first + len(counts)]
        long = None if self._long_after is None else tuple(line.long for line in lines)
        inputs = Inputs(self._within_vocabulary(tokens))
        step = Step(tuple(line.length for line in lines), counts, first, long, inputs)
        self.memory.prepare(step)
        hidden = self._model.network(step, self.memory)
        self.memory.commit(step, counts)
        self._lengthen(first, counts)
        return hidden

    def _within_vocabulary(self, tokens: mx.array) -> mx.array:
        """An id that only the target has gets a wrong embedding, which costs a draft and nothing else."""
        return tokens if self._knows_all else mx.minimum(tokens, self._model.vocab_size - 1)

    def _lengthen(self, first: int, counts: Sequence[int]) -> None:
        for line, count in zip(self._lines[first:], counts, strict=False):
            line.length += count

    def _logits(self, hidden: mx.array) -> mx.array:
        return within(self._model.network.logits(hidden), self._vocab_size)

    def _cut(self, row: int, length: int) -> None:
        """Forget what lies beyond `length`, and read again what had to go with it."""
        line = self._lines[row]
        if line.length > length:
            line.length = self.memory.rewind(row, length, self._marks[row] if self._marks else ())
            if not line.length:
                self._restart(row)


def _keys(line: _Line, ids: Sequence[int]) -> Keys:
    """What the prefix store knows the row's tokens by. Long sequences share nothing with others."""
    return in_namespace(tuple(ids), "long" if line.long else "")
