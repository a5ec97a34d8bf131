"""One step of the engine: forward passes of the target over the rows that have places, and the draws behind
them.

A step serves every decoding row with one token each, or with as many as a drafter guessed right, and reads
one chunk of the row that is being prefilled. Plain tokens are read on the host one step late, so that the
device never waits for Python (`runtime.engine.in_flight`).

Invariant: in `_in_flight` is at most one token of each row, the last that was drawn for it; the rows' ids
hold all that were drawn before.
"""

import math
from collections.abc import Callable
from typing import cast

import mlx.core as mx

from runtime.cache.protocol import by_layout
from runtime.engine.drawing import Drawing, Drawn, grammatical
from runtime.engine.in_flight import InFlight
from runtime.engine.notifier import Notifier
from runtime.engine.room import Room
from runtime.engine.row import Row
from runtime.errors import CacheFull, NotNumbers
from runtime.nn.operations import ops
from runtime.parts.decoder import decoder_parts_of
from runtime.sampling.constraint import ConstraintFault
from runtime.sampling.rejection import Guesses
from runtime.speculate.clock import now
from runtime.speculate.drafter import Rows
from runtime.speculate.drafting import Drafting
from runtime.speculate.forced_tokens import MOST_FORCED
from runtime.speculate.round import Guess, Outlook, Round
from runtime.step import Inputs, Step


class Steps:
    """room: what they are computed with. release: called with each row that has ended, to free its place.
    notifier: told when everything is on its way to the device and has to be waited for, which is when others
    may work.
    """

    beside = False
    """Was the last step prepared while the device computed the one before?"""

    def __init__(self, room: Room, release: Callable[[Row], None], notifier: Notifier) -> None:
        self._model, self._memory, self._adapters = room.model, room.memory, room.adapters
        self._prefixes, self._sources, self._drafting = room.prefixes, room.sources, room.drafting
        self._places, self._decoding = room.places, room.places.decoding
        self._release, self._notifier = release, notifier
        self._drawing = Drawing(room.model.vocab_size)
        self._in_flight = InFlight(room.parts)
        self._chunk: tuple[int, Row] | None = None
        self._plain = False

    def run(self, prefill: int) -> None:
        """One step, with up to `prefill` tokens of the row that is being prefilled.

        CacheFull when memory has no room for part of it; what was computed before is kept, and that part can
        be tried again.
        """
        if prefill:
            self._notifier.hurry()
        if not self._splits:
            self._in_flight.whole()
        if self._in_flight.begins and any(row.last_is_drawn for row in self._decoding):
            self.read_back()  # such a row is over then, and computes no token that would be thrown away
        if not self._in_flight.begins:
            if prefill:
                self._drafting.disturbed()
            drawn = self._decode(self._drafting)
        elif not grammatical(self._decoding) and self._drafting.pauses(
            len(self._decoding), shared=prefill > 0
        ):
            drawn = self._decode(self._drafting)
        else:
            drawn = self._round(shared=prefill > 0)
        self._plain = False
        full: CacheFull | None = None
        try:
            drawn += self._prefill(prefill)
        except CacheFull as error:
            full = error  # the rows that decode have taken their step
        # This step is on its way before the last one's tokens are waited for: the device never idles.
        self.beside = len(self._in_flight) > 0 and not prefill
        due = self._in_flight.dispatch(drawn)
        self._end_chunk()
        self._drafting.meanwhile()
        if self._drafting.listens:
            self._listen()
        self._read(due)
        for group in drawn:
            found = self._drawing.checked(group)
            if found is not group:
                self._in_flight.replace(group, found)  # what is drawn again is on its way, too
        if full is not None:
            raise full

    @property
    def _splits(self) -> bool:
        """Do rows decode in parts? Not if somebody has to see the tokens of one part, or those of a whole
        step.
        """
        drafting = self._drafting
        return self._in_flight.splits and not (
            grammatical(self._decoding) or drafting.observes or drafting.listens
        )

    def _round(self, *, shared: bool) -> list[Drawn]:
        """One step of the decoding rows, with drafts if somebody has some that pay. shared: another row is
        prefilled in the same step.
        """
        began = now()
        self._drafting.done(began)
        outlook = self._outlook()
        with self._drafting.round(began, outlook, shared=shared) as here:
            guess = self._propose(here) if outlook.asks else None
            return self._decode(here) if guess is None else self._verify(here, guess)

    def _listen(self) -> None:
        """Audition a drafter beside this step, on the tokens before those in flight."""
        rows = self._decoding
        told = None if grammatical(rows) else Rows([row.ids for row in rows], self._drawing.sampler(rows))
        self._drafting.listen(len(rows), told)

    def read_back(self) -> None:
        """Wait for the tokens in flight, hand them to their rows, and release rows that end."""
        self._read(self._in_flight.take())

    def _read(self, groups: list[Drawn]) -> None:
        if groups:
            self._notifier.device_waited_for()
        over: list[Row] = []
        for group in groups:
            for place, (row, (token,)) in enumerate(zip(group.rows, group.read(), strict=True)):
                if not row.done and self._take(row, token, group, place, 0):
                    over.append(row)
        self._let_go(over)

    def decode_plain(self) -> None:
        """Draft nothing at the next step: drafters must first see a plain step of some row."""
        self._plain = True

    def reset(self) -> None:
        """Drop what is in flight: its rows are gone."""
        self._in_flight.take()
        self._in_flight.whole()
        self._chunk = None
        self._drawing.forget()

    def _outlook(self) -> Outlook:
        """Who might have drafts for the decoding rows, and how far they may pay."""
        rows = self._decoding
        if self._plain:
            return Outlook(len(rows))
        limits = [row.most_drafts for row in rows]
        in_flight = sum(len(group.rows) for group in self._in_flight) == len(rows)
        forced = self._forced(rows, in_flight=in_flight) if grammatical(rows) else ()
        return self._drafting.outlook([row.ids for row in rows], limits, in_flight=in_flight, forced=forced)

    def _forced(self, rows: list[Row], *, in_flight: bool) -> list[int]:
        """For each row, how many tokens after the one in flight its grammar forces. A token in flight was
        drawn where the matcher stands, so it is the first of a forced run.
        """
        runs = [() if row.matcher is None else row.matcher.forced(MOST_FORCED + 1) for row in rows]
        return [max(len(run) - in_flight, 0) for run in runs]

    def _propose(self, here: Round) -> Guess | None:
        """A block of drafts for the decoding rows, once all their tokens have been read back."""
        # First: a drafter needs all ids, the ones in flight too, and rows that end with those leave.
        self.read_back()
        rows = list(self._decoding)
        if not rows:
            return None
        self._drawing.look_ahead(rows)
        seen = Rows([row.ids for row in rows], self._drawing.sampler(rows), self._drawing.ahead)
        return here.propose(seen, [row.most_drafts for row in rows])

    def _verify(self, here: Round, guess: Guess) -> list[Drawn]:
        """One forward pass over every row's newest token and its drafts. What the target agrees with is kept,
        and nothing is left in flight.

        The target draws its own token at each place. A draft stands while it equals that draw, so the tokens
        are those of plain decoding, and the first draw that differs comes for free.
        """
        rows = list(self._decoding)
        counts = tuple(1 + count for count in guess.proposal.counts)
        newest = mx.array([[row.ids[-1]] for row in rows], dtype=mx.int32)
        inputs = mx.concatenate([newest, guess.proposal.tokens], axis=1)[:, : max(counts)]
        starts, long = tuple(row.length for row in rows), self._prefixes.long(rows)
        step = Step(starts, counts, long=long, inputs=Inputs(inputs), adapters=self._adapters.of(rows))
        self._prepare(step)
        group = self._at_once(rows, step) if not guess.proposal.odds else None
        hidden = None
        if group is None:
            hidden = self._model.network(step, self._memory)
            guesses = Guesses([count - 1 for count in counts], guess.proposal.odds)
            group = self._draw(rows, hidden, step, inputs, [row.length + 1 for row in rows], guesses)
        mx.async_eval(*group.arrays, inputs)  # together: the drafts may be lazy, and one wait serves for all
        self._drafting.meanwhile()
        self._notifier.device_waited_for()
        drawn, drafts = group.read(), cast("list[list[int]]", inputs.tolist())
        # Behind the end of an answer no mask holds, so no draft there may pass for agreed upon.
        allowed = [draft[1:count] for draft, count in zip(drafts, counts, strict=True)]
        if self._drawing.ahead is not None:
            allowed = [its[: self._drawing.ahead.allowed(b, its)] for b, its in enumerate(allowed)]
        kept = [row.agrees(drawn[b], allowed[b]) for b, row in enumerate(rows)]
        here.keep(step, hidden, kept)
        for row, count, kept_count in zip(rows, counts, kept, strict=True):
            row.length += kept_count
            row.judged(guess.drafter, count - 1, kept_count - 1)
        over: list[Row] = []
        for place, row in enumerate(rows):
            its = drawn[place][: kept[place]]
            if any(self._take(row, token, group, place, column) for column, token in enumerate(its)):
                row.broke_off(its[:-1])
                over.append(row)
        self._let_go(over)
        return []

    def _decode(self, here: Round | Drafting) -> list[Drawn]:
        """Feed every decoding row, or those whose turn it is, its newest token and draw the next, waiting
        only where that is necessary. here: `Drafting` if the step is not a round.
        """
        if self._in_flight.holds(self._turn()):
            self.read_back()
        splits, rows = self._splits, self._turn()
        if not rows:
            return []
        starts, long = tuple(row.length for row in rows), self._prefixes.long(rows)
        inputs, first = Inputs(self._newest(rows)), self._decoding.index(rows[0])
        step = Step(starts, (1,) * len(rows), first, long, inputs, self._adapters.of(rows))
        self._prepare(step)
        if (drawn := self._at_once(rows, step)) is not None:
            self._kept(rows, step, None, here)
        else:
            hidden = self._forward(rows, step, here)
            drawn = self._draw(rows, hidden, step, step.ids, [row.length for row in rows])
        for row in rows:
            row.rounds += 1
        if splits:  # or would by now: rows with a grammar may have left as their tokens were read
            self._in_flight.taken(self._decoding)
        return [drawn]

    def _turn(self) -> list[Row]:
        """The rows that decode now."""
        return self._in_flight.part(self._decoding) if self._splits else list(self._decoding)

    def _prefill(self, count: int) -> list[Drawn]:
        """Read `count` more prompt tokens; the first token is drawn when the prompt is done."""
        row = self._places.prefilling
        if row is None or not count:
            return []
        place, count = len(self._decoding), self._prefixes.chunk(row, count)
        inputs = Inputs(mx.array([row.ids[row.length : row.length + count]], dtype=mx.int32))
        long, adapters = self._prefixes.long([row]), self._adapters.of([row])
        kept_only = count < row.unread and not self._drafting.observes
        step = Step((row.length,), (count,), place, long, inputs, adapters, kept_only)
        begins = bool(row.request.source) and not row.length
        if begins:
            self._sources.bring(row, step)
        self._prepare(step)
        hidden = self._forward([row], step, self._drafting)
        if begins:
            self._sources.keep(row, place)
        row.tell_progress()
        row.rounds += bool(row.generated)  # it is read anew
        if row.unread:
            self._chunk = place, row
            return []
        self._places.start_decoding()
        return [self._draw([row], hidden[:, -1:], step, step.ids[:, -1:], [row.length])]

    def _end_chunk(self) -> None:
        """Wait for the chunk that was read, where more of its prompt follows."""
        chunk, self._chunk = self._chunk, None
        if chunk is not None:
            self._notifier.device_waited_for()
            self._memory.evaluate()  # and nothing else: the last layer's outputs are never computed
            self._prefixes.reached(*chunk)

    def _at_once(self, rows: list[Row], step: Step) -> Drawn | None:
        """The token after each of the step's, by one operation from ids to ids; None, with nothing done, if
        there is no such operation, or if somebody needs hidden states or logits.
        """
        asked = ops.by_kernels("guess") and not self._drafting.observes
        network = decoder_parts_of(self._model.network) if asked else None
        if network is None:
            return None
        by = self._drawing.plainly(rows, [row.length + 1 for row in rows], step.width)
        if by is None:
            return None
        drawn = ops.table.guess(network, step, None, by_layout(self._memory), by)
        return None if drawn is None else Drawn(rows, drawn.tokens, broken=drawn.broken)

    def _forward(self, rows: list[Row], step: Step, where: Round | Drafting) -> mx.array:
        """Hidden states [n, L, D] of one step that is prepared, all of it kept."""
        hidden = self._model.network(step, self._memory)
        self._kept(rows, step, hidden, where)
        return hidden

    def _kept(self, rows: list[Row], step: Step, hidden: mx.array | None, where: Round | Drafting) -> None:
        """Commit the whole step: what the layers wrote counts from now on."""
        where.keep(step, hidden, step.counts)
        for row, count in zip(rows, step.counts, strict=True):
            row.length += count

    def _prepare(self, step: Step) -> None:
        """Before the network: CacheFull inside it would leave layers at two lengths."""
        self._memory.prepare(step, len(self._places.rows))

    def _newest(self, rows: list[Row]) -> mx.array:
        """int32 [n, 1]: each row's last token, straight from the device where it has not been read back."""
        mine = [group for group in self._in_flight if any(row in rows for row in group.rows)]
        in_flight = [row for group in mine for row in group.rows]
        known = [row for row in rows if row not in in_flight]
        groups = [group.tokens for group in mine]
        if known:
            groups.append(mx.array([[row.ids[-1]] for row in known], dtype=mx.int32))
        tokens, order = mx.concatenate(groups) if len(groups) > 1 else groups[0], in_flight + known
        return tokens if order == rows else tokens[mx.array([order.index(row) for row in rows])]

    def _draw(
        self,
        rows: list[Row],
        hidden: mx.array,
        step: Step,
        inputs: mx.array,
        positions: list[int],
        guesses: Guesses | None = None,
    ) -> Drawn:
        """The tokens that follow each of `inputs` [n, L], whose hidden states are [n, L, D]. See Drawing."""
        logits = self._model.network.logits(hidden, step)
        if grammatical(rows):
            in_flight = guesses is None and any(grammatical(group.rows) for group in self._in_flight)
            if in_flight and (assumed := self._drawing.steady(rows)) is not None:
                return self._drawing.draw(rows, logits, inputs, positions, assumed=assumed)
            # The device computes the logits while the host looks at what came before them.
            mx.async_eval(logits)
            if guesses is None:
                if in_flight:
                    self.read_back()
                self._drawing.look_ahead(rows)
        return self._drawing.draw(rows, logits, inputs, positions, guesses)

    def _take(self, row: Row, token: int, group: Drawn, place: int, column: int) -> bool:
        """Hand the row its next token; True if that ends it."""
        tokens, details = row.position, group.details(place, column)
        if group.is_broken(place, column) or (details is not None and math.isnan(details.logprob)):
            return self._break(row, tokens)
        try:
            reason = row.take(token, details)
        except ConstraintFault as fault:
            if row.refuses(token):
                return self._break(row, tokens)
            row.stream.put(fault)
            return True
        if reason is not None:
            row.end(reason)
        return reason is not None

    def _break(self, row: Row, tokens: int) -> bool:
        """End a row whose logits after so many tokens are not numbers."""
        row.stream.put(NotNumbers(tokens, str(self._model.dtype).rpartition(".")[2]))
        row.broken = True
        return True

    def _let_go(self, rows: list[Row]) -> None:
        """Release rows that have ended, the last first: a free place is taken by the last decoding row."""
        for row in reversed(rows):
            self._release(row)
