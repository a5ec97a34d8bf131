"""Draw the next tokens of several rows, each by its own parameters.

Order: penalties, DRY, logit bias, grammar mask, early ends; then temperature 0 takes the argmax, else
top-n-sigma, top-k, softmax/T, typical, top-p, min-p, XTC, draw. It is llama.cpp's, but for the temperature,
which stands last there; XTC counts odds at temperature 1, as there, and spares no token (mlx-lm spares line
ends and ends of a text). Everything is lazy: nothing here waits for the
device, but for DRY, which has to know the step's inputs.

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
from runtime.sampling.group import DrawInput, RowGroup
from runtime.sampling.kinds import DrawKind
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
        self._apart = [one for one in self._groups if one[1].kind.by_steps]
        self._together = _joined([one for one in self._groups if not one[1].kind.by_steps], params)

    @property
    def wants_history(self) -> bool:
        """Some row has penalties, or DRY, so `sample` must be given `history` and `inputs`."""
        return any(group.kind.wants_history for _, group in self._groups)

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
        if self._apart or self._together is None:
            return None
        group, counted = self._together[1], self._counted(positions)
        if group.kind.dry or (group.ends is not None and group.ends.early(counted)):
            return None
        by, before = group.penalties, None
        if by is not None:
            ends = enumerate(zip(texts, stops, strict=True))
            before = by, [by.recent(row, text, stop) for row, (text, stop) in ends]
        return GuessParams(ids, group.draws, counted, looks, before, group.biased)

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
        at_once = self._at_once(block)
        groups = self._groups if at_once is None else self._apart
        drawn = [(rows, group.sample(block.take(rows))) for rows, group in groups]
        return _in_order(drawn if at_once is None else [at_once, *drawn])

    def _at_once(self, block: DrawInput) -> tuple[list[int], mx.array] | None:
        """Those rows that one operation draws, of several kinds; None where it does not."""
        if self._together is None:
            return None
        rows, group = self._together
        tokens = group.at_once(block.take(rows) if self._apart else block)
        return None if tokens is None else (rows, tokens)

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
        odds: list[mx.array | None] = [None] * len(self._dropped)
        drawn: list[tuple[list[int], mx.array]] = []
        for rows, group in self._groups:
            tokens, its = group.draft(block if len(self._groups) == 1 else block.take(rows))
            drawn.append((rows, tokens))
            if its is not None:
                for place, row in enumerate(rows):
                    odds[row] = its[place : place + 1]
        return _in_order(drawn), odds

    def _counted(self, positions: Sequence[int]) -> list[int]:
        return [position + more for position, more in zip(positions, self._dropped, strict=True)]


def _joined(
    groups: Sequence[tuple[list[int], RowGroup]], params: Sequence[SamplingParams]
) -> tuple[list[int], RowGroup] | None:
    """The rows of several kinds as one group, for `RowGroup.at_once`; None for none."""
    if len(groups) < 2:
        return groups[0] if groups else None
    rows = sorted(row for its, _ in groups for row in its)
    kind = DrawKind.all_of([group.kind for _, group in groups])
    return rows, RowGroup(kind, [params[row] for row in rows])


def _in_order(drawn: Sequence[tuple[list[int], mx.array]]) -> mx.array:
    """The tokens of all rows, group by group, in the order of the rows."""
    if len(drawn) == 1:
        return drawn[0][1]
    order = [row for rows, _ in drawn for row in rows]
    back = sorted(range(len(order)), key=order.__getitem__)
    return mx.concatenate([tokens for _, tokens in drawn])[mx.array(back)]
