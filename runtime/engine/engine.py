"""The engine: requests in, tokens out, many rows at once, on one MLX thread.

A step serves every decoding row with one token each and reads one chunk of the row that is being prefilled.
The next step is dispatched before the previous one's tokens are read on the host, so that the device never
waits for Python. Rows 0..n-1 of the layer memory decode, row n is the one being prefilled; a finished row's
place is taken by the last one.

Invariant: methods without an underscore may be called from any thread, all else runs on the engine's own.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

import mlx.core as mx

from runtime.cache.budget import Budget
from runtime.cache.build import LayerMemory, build_memory
from runtime.cache.prefix import Entry
from runtime.engine.drawn import Drawn
from runtime.engine.options import Options
from runtime.engine.prefixes import Prefixes
from runtime.engine.request import Request, TokenLogprob
from runtime.engine.row import Row
from runtime.engine.scheduler import Load, decide
from runtime.engine.speculation import Round, Speculation
from runtime.engine.stream import Stream
from runtime.engine.thread import MlxThread
from runtime.errors import CacheFull, RuntimeFault
from runtime.loaded import LoadedModel, check_ids
from runtime.sampling.logprobs import logprobs
from runtime.sampling.sampler import Sampler
from runtime.speculate.drafter import Drafter, Rows
from runtime.step import Step

T = TypeVar("T")


class Engine:
    """Runs one loaded model. `load` and `drafters` are called on the engine's thread, where all arrays
    live.
    """

    def __init__(
        self,
        load: Callable[[], LoadedModel],
        options: Options,
        drafters: Callable[[LoadedModel], Mapping[str, Drafter]] | None = None,
    ) -> None:
        self._options = options
        self._waiting: deque[Row] = deque()
        self._decoding: list[Row] = []
        self._prefilling: Row | None = None
        self._in_flight: list[Drawn] = []
        self._sampler: tuple[list[Row], Sampler] | None = None
        self._speculation = Speculation({})
        self._thread = MlxThread(self._work)
        try:
            self.model = self._thread.call(load)
            self._memory = self._thread.call(self._new_memory)
            if drafters is not None:
                self._speculation = Speculation(self._thread.call(lambda: drafters(self.model)))
            self._prefixes = Prefixes.of(self._memory, options, self.model.dtype)
        except BaseException:
            self._thread.close()
            raise

    def submit(self, request: Request) -> Stream:
        """Queue a request. Raises BadTokenIds for ids outside the vocabulary, ValueError for an impossible
        length.
        """
        check_ids(request.ids, self.model.vocab_size)
        check_ids(list(request.sampling.logit_bias), self.model.vocab_size)
        wanted, context = len(request.ids) + request.max_tokens, self._options.context_length
        if not request.ids or request.max_tokens < 0 or wanted > context:
            raise ValueError(
                f"{len(request.ids)} prompt tokens and {request.max_tokens} to generate "
                f"do not fit a context of {context}"
            )
        stream = Stream(lambda: self._post_cancel(row))
        row = Row(request, stream)
        self._thread.post(lambda: self._waiting.append(row))
        return stream

    def call(self, function: Callable[[LoadedModel], T]) -> T:
        """Run `function` on the engine's thread between two steps and return its result."""
        return self._thread.call(lambda: function(self.model))

    def list_prefixes(self) -> list[Entry]:
        """What is kept of earlier sequences: nodes of a tree, parents before children."""
        return self._thread.call(self._prefixes.describe)

    def clear_prefixes(self) -> None:
        """Forget it, but for what running sequences stand on."""
        self._thread.call(self._prefixes.clear)

    def close(self) -> None:
        """Cancel everything and stop the thread. Streams end as cancelled."""
        self._thread.post(self._cancel_all)
        self._thread.close()
        self._prefixes.close()

    def _new_memory(self) -> LayerMemory:
        budget = Budget(self._options.cache_bytes)
        return build_memory(self.model.described.layout, dtype=self.model.dtype, budget=budget)

    def _post_cancel(self, row: Row) -> None:
        def cancel() -> None:
            row.cancelled = True

        self._thread.post(cancel)

    def _cancel_all(self) -> None:
        for row in [*self._waiting, *self._decoding, *([self._prefilling] if self._prefilling else [])]:
            row.cancelled = True
        self._drop_cancelled()

    def _work(self) -> bool:
        """One step; False when there is nothing to do."""
        self._drop_cancelled()
        work = decide(self._load(), self._options.budget_tokens)
        if work.idle:
            self._speculation.end(None)
            return False
        try:
            if work.admit:
                self._admit(self._waiting.popleft())
            else:
                self._step(work.prefill)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the callers get it and the thread lives on
            self._fail(error)
        return True

    def _load(self) -> Load:
        rows = len(self._decoding) + (self._prefilling is not None)
        unread = self._prefilling.unread if self._prefilling else 0
        return Load(len(self._decoding), unread, len(self._waiting), self._options.max_rows - rows)

    def _admit(self, row: Row) -> None:
        row.admitted = time.monotonic()
        if row.request.max_tokens == 0:
            row.end("length")
            return
        place = len(self._decoding)
        try:
            if self._memory.rows <= place:
                # Doubling keeps the number of buffer copies small while rows join one by one.
                self._memory.resize(min(2 * self._memory.rows, self._options.max_rows))
                self._speculation.resize(self._memory.rows)
        except CacheFull as error:
            row.stream.put(error)  # the rows that run have what they need
            return
        self._prefilling = row
        self._prefixes.begin(place, row, list(enumerate(self._decoding)))

    def _step(self, prefill: int) -> None:
        if any(row.last_is_drawn for row in self._decoding):
            self._read_back()  # what such a row would compute next is of no use to anybody
        began = time.monotonic()
        proposed = self._propose()
        if proposed is None:
            drawn = self._decode()
            self._speculation.begin(began, None, 0, max(len(drawn and drawn[0].rows), 1), shared=prefill > 0)
        else:
            self._speculation.begin(
                began, proposed.drafter, proposed.depth, len(self._decoding), shared=prefill > 0
            )
            drawn = []
            self._verify(proposed)
        drawn += self._prefill(prefill)
        mx.async_eval([group.tokens for group in drawn])
        self._read_back()
        self._in_flight = drawn

    def _propose(self) -> Round | None:
        """A block of guesses for the decoding rows, if somebody has one that may pay."""
        rows = self._decoding
        if not rows or not self._speculation.wanted(len(rows)):
            return None
        self._read_back()
        rows = list(self._decoding)
        if not rows:
            return None
        seen = Rows([row.ids for row in rows], self._sampler_for(rows))
        return self._speculation.propose(seen, [row.most_drafts for row in rows])

    def _verify(self, proposed: Round) -> None:
        """One forward pass over every row's newest token and its drafts; all that the target agrees with is
        kept.

        The target draws its own token at each place. A draft stands while it equals that draw, so the tokens
        are those of plain decoding, and the first draw that differs comes for free.
        """
        rows = list(self._decoding)
        counts = tuple(1 + count for count in proposed.proposal.counts)
        newest = mx.array([[row.ids[-1]] for row in rows], dtype=mx.int32)
        inputs = mx.concatenate([newest, proposed.proposal.tokens], axis=1)[:, : max(counts)]
        step = Step(starts=tuple(row.length for row in rows), counts=counts)
        self._memory.prepare(step)
        hidden = self.model.network(inputs, step, self._memory)
        group = self._draw(rows, hidden, inputs, [row.length + 1 for row in rows])
        mx.eval(group.tokens, inputs)
        drawn, drafts = (
            cast("list[list[int]]", group.tokens.tolist()),
            cast("list[list[int]]", inputs.tolist()),
        )
        kept = [row.agrees(drawn[b], drafts[b][1 : counts[b]]) for b, row in enumerate(rows)]
        self._memory.commit(step, kept)
        self._speculation.observe(step, inputs, hidden, kept)
        for row, count, kept_count in zip(rows, counts, kept, strict=True):
            row.length += kept_count
            row.drafted += count - 1
            row.accepted += kept_count - 1
        self._speculation.settle([row.length for row in rows])
        self._speculation.judge([(count - 1, k - 1) for count, k in zip(counts, kept, strict=True)])
        for place, row in enumerate(rows):
            for column in range(kept[place]):
                if not row.done:
                    self._take(row, drawn[place][column], group.details(place, column))

    def _decode(self) -> list[Drawn]:
        """Feed every decoding row its newest token and draw the next; nothing is waited for."""
        if not self._decoding:
            return []
        rows = list(self._decoding)
        inputs = self._newest(rows)
        step = Step(starts=tuple(row.length for row in rows), counts=(1,) * len(rows))
        hidden = self._forward(rows, inputs, step)
        return [self._draw(rows, hidden, inputs, [row.length for row in rows])]

    def _prefill(self, count: int) -> list[Drawn]:
        """Read `count` more prompt tokens; the first token is drawn when the prompt is done."""
        row = self._prefilling
        if row is None:
            return []
        place, count = len(self._decoding), self._prefixes.chunk(row, count)
        inputs = mx.array([row.ids[row.length : row.length + count]], dtype=mx.int32)
        step = Step(starts=(row.length,), counts=(count,), first=place)
        try:
            hidden = self._forward([row], inputs, step)
        except CacheFull as error:
            self._leave_prefill()
            row.stream.put(error)  # nothing was written, and the rows that decode have what they need
            return []
        if row.unread:
            self._memory.evaluate()  # and nothing else: the last layer's outputs are never computed
            self._prefixes.reached(place, row)
            return []
        self._prefilling = None
        self._decoding.append(row)
        return [self._draw([row], hidden[:, -1:], inputs[:, -1:], [row.length])]

    def _forward(self, rows: list[Row], inputs: mx.array, step: Step) -> mx.array:
        """Hidden states [n, L, D] of one step, committed to memory."""
        self._memory.prepare(step)
        hidden = self.model.network(inputs, step, self._memory)
        self._memory.commit(step, step.counts)
        self._speculation.observe(step, inputs, hidden, step.counts)
        for row, count in zip(rows, step.counts, strict=True):
            row.length += count
        return hidden

    def _newest(self, rows: list[Row]) -> mx.array:
        """int32 [n, 1]: each row's last token, straight from the device where it has not been read back."""
        flying = [row for group in self._in_flight for row in group.rows]
        if not flying:
            return mx.array([[row.ids[-1]] for row in rows], dtype=mx.int32)
        groups = [group.tokens for group in self._in_flight]
        tokens = mx.concatenate(groups) if len(groups) > 1 else groups[0]
        return tokens if flying == rows else tokens[mx.array([flying.index(row) for row in rows])]

    def _draw(self, rows: list[Row], hidden: mx.array, inputs: mx.array, positions: list[int]) -> Drawn:
        """The tokens that follow each of `inputs` [n, L], whose hidden states are [n, L, D].

        positions: where the token after each row's first input will stand.
        """
        logits = self.model.network.logits(hidden)
        sampler = self._sampler_for(rows)
        # The first input may not have been read back yet: the past is all before it.
        pasts = [row.ids[: start - 1] for row, start in zip(rows, positions, strict=True)]
        tokens = sampler.sample(
            logits, positions, history=pasts if sampler.wants_history else None, inputs=inputs
        )
        wanted = [row.request.top_logprobs for row in rows if row.request.top_logprobs is not None]
        return Drawn(rows, tokens, logprobs(logits, tokens, max(wanted)) if wanted else None)

    def _sampler_for(self, rows: list[Row]) -> Sampler:
        if self._sampler is None or self._sampler[0] != rows:
            self._sampler = (rows, Sampler([row.request.sampling for row in rows]))
        return self._sampler[1]

    def _read_back(self) -> None:
        """Wait for the tokens in flight, hand them to their rows, and let go of rows that end."""
        groups, self._in_flight = self._in_flight, []
        for group in groups:
            tokens = cast("list[int]", group.tokens[:, 0].tolist())
            for place, (row, token) in enumerate(zip(group.rows, tokens, strict=True)):
                if not row.done:
                    self._take(row, token, group.details(place, 0))

    def _take(self, row: Row, token: int, details: TokenLogprob | None) -> None:
        reason = row.take(token, details)
        if reason is not None:
            row.end(reason)
            self._release(row)

    def _release(self, row: Row) -> None:
        """Free the row's place; the last decoding row moves into it."""
        row.done = True
        place, last = self._decoding.index(row), len(self._decoding) - 1
        self._prefixes.end(place, row)
        self._decoding[place] = self._decoding[last]
        self._decoding.pop()
        self._clear(place)
        if place != last:
            self._move(last, place)
        if self._prefilling is not None:
            self._move(last + 1, last)

    def _move(self, src: int, dst: int) -> None:
        self._memory.move(src, dst)
        self._speculation.move(src, dst)

    def _clear(self, place: int) -> None:
        self._memory.clear(place)
        self._speculation.clear(place)

    def _drop_cancelled(self) -> None:
        for row in [row for row in self._waiting if row.cancelled]:
            self._waiting.remove(row)
            row.end("cancelled")
        for row in [row for row in self._decoding if row.cancelled]:
            self._release(row)
            row.end("cancelled")
        if self._prefilling is not None and self._prefilling.cancelled:
            self._prefilling.end("cancelled")
            self._leave_prefill()

    def _leave_prefill(self) -> None:
        assert self._prefilling is not None
        place = len(self._decoding)
        self._prefixes.end(place, self._prefilling)
        self._clear(place)
        self._prefilling = None

    def _fail(self, error: Exception) -> None:
        """A step could not be computed: its rows get the error, requests that wait are not concerned."""
        for row in [*self._decoding, *([self._prefilling] if self._prefilling else [])]:
            self._prefixes.forget(row)
            row.stream.put(error)
        self._decoding.clear()
        self._in_flight = []
        self._prefilling = self._sampler = None
        for place in range(self._memory.rows):
            self._clear(place)
        if not isinstance(error, RuntimeFault):
            self._prefixes.clear()  # whatever has happened to the device may have happened to pages
