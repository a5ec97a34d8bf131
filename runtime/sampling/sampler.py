"""Draw the next tokens of several rows, each by its own parameters.

Order: penalties, logit bias, grammar mask; then temperature 0 takes the argmax, else top-k, softmax/T,
typical, top-p, min-p, draw. Everything is lazy: nothing here waits for the device.

Invariants: a row's token depends on its own logits, parameters, position and history only, never on other
rows, on their order or on how many columns a step has. Rows that want the same kind of work share one pass,
whatever their numbers; where one operation draws them (`Operations.draw`), all do.

Arrays: B rows, T columns of a step, V vocabulary. Column t of row b draws the token of position positions[b]
+ t, having seen `history[b]` and the step's inputs up to and including column t. In a block of drafts the
inputs are the last token and the drafts; in plain decoding, the last token.
"""

from collections.abc import Iterable, Sequence

import mlx.core as mx

from runtime.parts.draws import GuessParams
from runtime.sampling.group import DrawInput, DrawKind, RowGroup
from runtime.sampling.params import SamplingParams
from runtime.sampling.rejection import Guesses


class Sampler:
    """Built for a list of rows, used for any number of steps; building it again when rows change is cheap."""

    def __init__(self, params: Sequence[SamplingParams], dropped: Sequence[int] = ()) -> None:
        """dropped: per row, how many tokens its sequence has forgotten. Noise counts them: at a position that
        it has come to again, a row draws anew.
        """
        self._dropped = dropped or [0] * len(params)
        members: dict[DrawKind, list[int]] = {}
        for row, its in enumerate(params):
            members.setdefault(DrawKind.of(its), []).append(row)
        self._groups = [
            (rows, RowGroup(kind, [params[row] for row in rows])) for kind, rows in members.items()
        ]
        one = len(self._groups) == 1
        self._all = self._groups[0][1] if one else RowGroup(DrawKind.all_of([*members]), params)
        order = [row for rows, _ in self._groups for row in rows]
        self._back = sorted(
            range(len(order)), key=order.__getitem__
        )  # where each row's tokens stand, group by group

    @property
    def wants_history(self) -> bool:
        """Some row has penalties, so `sample` must be given `history` and `inputs`."""
        return any(group.kind.penalised for _, group in self._groups)

    @property
    def wants_odds(self) -> bool:
        """Some row judges drafts by rejection, so who drafts must tell what the drafts were drawn from."""
        return any(group.kind.rejecting for _, group in self._groups)

    def plainly(
        self,
        positions: Sequence[int],
        texts: Sequence[Sequence[int]],
        stops: Iterable[int],
        *,
        ids: int | None = None,
        looks: bool = False,
    ) -> GuessParams | None:
        """How all rows are drawn, where logits, noise, penalties and biases alone decide; else None.

        positions: as in `sample`. texts: of each row its ids, of which those before `stops` are known before
        the step. ids, looks: of `GuessParams`.
        """
        group = self._all
        if group.kind.rejecting:
            return None
        by, before = group.penalties, None
        if by is not None:
            ends = enumerate(zip(texts, stops, strict=True))
            before = by, [by.recent(row, text, stop) for row, (text, stop) in ends]
        return GuessParams(ids, group.draws, self._counted(positions), looks, before, group.biased)

    def sample(
        self,
        logits: mx.array,
        positions: Sequence[int],
        *,
        history: Sequence[Sequence[int]] | None = None,
        inputs: mx.array | None = None,
        mask: mx.array | None = None,
        guesses: Guesses | None = None,
    ) -> mx.array:
        """Tokens, int32 [B, T], from logits [B, T, V].

        positions: per row, where the token drawn in column 0 will stand. history: per row, the ids before the
        step's inputs. inputs: int32 [B, T], the ids the step was fed, padding being any valid id. mask: [B,
        T, V], bool (true is allowed) or added to the logits; it must leave every position an id.
        guesses: the inputs behind the first are drafts; rows that reject judge them, and their token is the
        draft only where it stands. Raises BadTokenIds for a bias on an id outside the vocabulary, ValueError
        where history is wanted and missing.
        """
        block = DrawInput(logits, self._counted(positions), history, inputs, mask, guesses)
        if len(self._groups) == 1:
            return self._groups[0][1].sample(block)
        if not self._all.kind.rejecting and (tokens := self._all.at_once(block)) is not None:
            return tokens
        drawn = [group.sample(block.take(rows)) for rows, group in self._groups]
        return mx.concatenate(drawn)[mx.array(self._back)]

    def draft(
        self,
        logits: mx.array,
        positions: Sequence[int],
        *,
        history: Sequence[Sequence[int]] | None = None,
        inputs: mx.array | None = None,
        mask: mx.array | None = None,
    ) -> tuple[mx.array, list[mx.array | None]]:
        """The tokens of `sample`, and per row the log-probabilities [1, T, V] that they were drawn from; None
        for rows that do not reject.
        """
        block = DrawInput(logits, self._counted(positions), history, inputs, mask)
        odds: list[mx.array | None] = [None] * len(self._back)
        drawn: list[mx.array] = []
        for rows, group in self._groups:
            tokens, its = group.draft(block if len(self._groups) == 1 else block.take(rows))
            drawn.append(tokens)
            if its is not None:
                for place, row in enumerate(rows):
                    odds[row] = its[place : place + 1]
        if len(drawn) == 1:
            return drawn[0], odds
        return mx.concatenate(drawn)[mx.array(self._back)], odds

    def _counted(self, positions: Sequence[int]) -> list[int]:
        return [position + more for position, more in zip(positions, self._dropped, strict=True)]
