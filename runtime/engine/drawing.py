"""From logits to tokens: the samplers and grammars of the rows that a step serves.

Logits that are NaN or infinite come from weights that are, so they show in an answer's first token, or from a
computation that left its range, after which all tokens see them in memory. So every LOOK-th token is looked
at, the first one included, which costs nothing that could be measured.
"""

from typing import Any, cast

import mlx.core as mx

from runtime.engine.request import TokenLogprob
from runtime.engine.row import Row
from runtime.parts.draws import GuessParams
from runtime.records import dataclass
from runtime.sampling.constraint import Ahead, unpacked
from runtime.sampling.logprobs import Logprobs, logprobs
from runtime.sampling.ranges import MOST_LOGPROBS
from runtime.sampling.rejection import Guesses
from runtime.sampling.sampler import Sampler

LOOK = 32


@dataclass(frozen=True, slots=True)
class Assumed:
    """What tokens were drawn from before the grammars could know what stands in front of them."""

    logits: mx.array
    inputs: mx.array
    positions: list[int]
    masks: tuple[bytes | None, ...]
    """Of each row what its grammar is taken to allow."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens drawn for some rows and not read back yet.

    They are read as they lie in memory. A slice of them would be one more thing to compute, behind all of the
    next step, which is on its way by then.
    """

    rows: list[Row]
    """The n rows they are for."""
    tokens: mx.array
    """int32 [n, L]."""
    logprobs: Logprobs | None = None
    """None where no row asked for them."""
    broken: mx.array | None = None
    """bool [n, L], whether the logits were not numbers; None where that was not looked at (see Drawing)."""
    assumed: Assumed | None = None
    """To be looked at again (`Drawing.checked`) once the tokens in front are known; None: nothing is."""

    @property
    def arrays(self) -> list[mx.array]:
        """What is to be computed for it."""
        details = () if self.logprobs is None else self.logprobs.arrays
        return [self.tokens, *details] if self.broken is None else [self.tokens, *details, self.broken]

    def read(self) -> list[list[int]]:
        """The tokens, [n][L], once they are computed."""
        return cast("list[list[int]]", self.tokens.tolist())

    def is_broken(self, place: int, column: int) -> bool:
        """Was there nothing to draw this token from?"""
        return self.broken is not None and bool(_read(self.broken)[place, column])

    def details(self, place: int, column: int) -> TokenLogprob | None:
        """What a row that asked for log-probabilities gets of one token."""
        wanted = self.rows[place].request.top_logprobs
        if self.logprobs is None or wanted is None:
            return None
        token, chosen, ids, values = map(_read, (self.tokens, *self.logprobs.arrays))
        given = range(min(wanted, self.logprobs.ids.shape[2]))
        best = tuple((ids[place, column, i], values[place, column, i]) for i in given)
        return TokenLogprob(token[place, column], chosen[place, column], best)


class Drawing:
    """`ahead` is what the rows' grammars allow from where they stand; None where no row has one."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._sampler: tuple[list[Row], list[int], Sampler] | None = None
        self._unpacked: tuple[tuple[bytes | None, ...], mx.array] | None = None
        self.ahead: Ahead | None = None

    def steady(self, rows: list[Row]) -> tuple[bytes | None, ...] | None:
        """The masks of these rows, where each was the same twice: in free text they mostly stay. None where
        some row's was not.
        """
        open_rows = [row for row in rows if row.open_matcher is not None]
        if any(row.masks[1] is None or row.masks[0] != row.masks[1] for row in open_rows):
            return None
        return tuple(None if row.open_matcher is None else row.masks[1] for row in rows)

    def checked(self, drawn: Drawn) -> Drawn:
        """What was drawn, or where a grammar now says something else than was assumed, drawn again. All
        tokens in front of it are known.
        """
        given, rows = drawn.assumed, drawn.rows
        if given is None:
            return drawn
        self.look_ahead(rows)
        ahead = self.ahead
        assert ahead is not None, "some row has a grammar"
        # A row that is over by now has no mask, and what is drawn for it is thrown away.
        right = all(
            row.done or row.matcher is None or ahead.now(place) == mask
            for place, (row, mask) in enumerate(zip(rows, given.masks, strict=True))
        )
        if not right:
            return self.draw(rows, given.logits, given.inputs, given.positions)
        self._remember(rows, ahead)
        return drawn

    def look_ahead(self, rows: list[Row]) -> None:
        """Ask the grammars anew: all tokens of these rows are known to them."""
        self.ahead = (
            Ahead([row.open_matcher for row in rows], self._vocab_size) if grammatical(rows) else None
        )

    def sampler(self, rows: list[Row]) -> Sampler:
        """Made once for as long as the rows are the same, and have forgotten no more."""
        dropped = [len(row.dropped) for row in rows]
        if self._sampler is None or self._sampler[:2] != (rows, dropped):
            # A list of its own: rows come to a caller's, and go from it.
            self._sampler = ([*rows], dropped, Sampler([row.request.sampling for row in rows], dropped))
        return self._sampler[2]

    def plainly(self, rows: list[Row], positions: list[int], columns: int) -> GuessParams | None:
        """How tokens of each row are drawn, where their logits and what a request says of ids decide, and
        nobody asks for more of them. positions: where the first of so many columns will stand.
        """
        if any(row.request.top_logprobs is not None or row.matcher is not None for row in rows):
            return None
        return self.sampler(rows).plainly(
            positions,
            [row.ids for row in rows],
            [start - 1 for start in positions],
            looks=_due(rows, positions, columns),
        )

    def draw(
        self,
        rows: list[Row],
        logits: mx.array,
        inputs: mx.array,
        positions: list[int],
        guesses: Guesses | None = None,
        assumed: tuple[bytes | None, ...] | None = None,
    ) -> Drawn:
        """The tokens that follow each of `inputs` [n, L], by logits [n, L, V].

        positions: where the token after each row's first input will stand. guesses: the inputs behind the
        first are drafts. assumed: of `steady`, where the newest tokens are not known yet.
        """
        sampler = self.sampler(rows)
        pasts: list[list[int]] | None = None
        if sampler.wants_history:
            # The first input may not have been read back yet: the past is all before it.
            pasts = [row.ids[: start - 1] for row, start in zip(rows, positions, strict=True)]
        tokens = sampler.sample(
            logits,
            positions,
            history=pasts,
            inputs=inputs,
            mask=self._mask(rows, inputs, guesses) if assumed is None else self._standing(assumed),
            guesses=guesses,
        )
        wanted = [row.request.top_logprobs for row in rows if row.request.top_logprobs is not None]
        # Which of equally likely ids are found depends on how many are looked for: the same for every row.
        count = max(*wanted, MOST_LOGPROBS) if any(wanted) else 0
        details = logprobs(logits, tokens, count) if wanted else None
        broken = _broken(logits) if _due(rows, positions, logits.shape[1]) else None
        again = None if assumed is None else Assumed(logits, inputs, positions, assumed)
        return Drawn(rows, tokens, details, broken, again)

    def forget(self) -> None:
        """The rows are gone."""
        self._sampler = self._unpacked = self.ahead = None

    def _mask(self, rows: list[Row], inputs: mx.array, guesses: Guesses | None) -> mx.array | None:
        """What the rows' grammars allow, bool [n, L, V]; None where no row has one."""
        if self.ahead is None or not grammatical(rows):
            return None
        drafts: list[list[int]] = [[] for _ in rows]
        if guesses is not None:
            fed = cast("list[list[int]]", inputs.tolist())
            drafts = [its[1 : 1 + count] for its, count in zip(fed, guesses.counts, strict=True)]
        mask = self.ahead.block(drafts, inputs.shape[1])
        for place, fault in self.ahead.failed.items():
            rows[place].fault = fault
        if guesses is None:
            self._remember(rows, self.ahead)
        else:
            for row in rows:
                row.masks = (None, None)
        return mask

    def _remember(self, rows: list[Row], ahead: Ahead) -> None:
        for place, row in enumerate(rows):
            row.masks = (row.masks[1], ahead.now(place))

    def _standing(self, masks: tuple[bytes | None, ...]) -> mx.array:
        """As `_mask`. Unpacked once for as long as the masks are the same."""
        if self._unpacked is None or self._unpacked[0] != masks:
            known = [[] if mask is None else [mask] for mask in masks]
            self._unpacked = masks, unpacked(known, 1, self._vocab_size)
        return self._unpacked[1]


def _read(array: mx.array) -> "memoryview[Any]":  # it takes no arguments before Python 3.14
    """What is in it, once it is computed."""
    return memoryview(cast("Any", array))  # MLX's stubs do not say that it is a buffer


def _due(rows: list[Row], positions: list[int], columns: int) -> bool:
    """Is any of these the first token of an answer, or another LOOK-th?"""
    numbers = (
        start + len(row.dropped) - len(row.request.ids) for row, start in zip(rows, positions, strict=True)
    )
    return any(-number % LOOK < columns for number in numbers)


def _broken(logits: mx.array) -> mx.array:
    """bool [n, L]. An id that is forbidden may have -inf."""
    return (mx.isnan(logits) | mx.isposinf(logits)).any(axis=-1)


def grammatical(rows: list[Row]) -> bool:
    """Does any row's answer follow a grammar?"""
    return any(row.matcher is not None for row in rows)
