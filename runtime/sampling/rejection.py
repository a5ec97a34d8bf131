"""Rejection sampling: which drafts stand, and what is drawn in place of the first that does not.

A draft x that was drawn from q stands with probability min(1, p(x) / q(x)), p being the row's own odds at
that place. Where it falls, the token comes from max(p - q, 0): so every token has the odds p, whatever q is
(Leviathan et al., 2023, appendix A.1). A draft that was not drawn but found is certain: q is 1 there.

The two draws at a place use noise of their own streams, independent of the noise the draft was drawn with.
Noise at a place behind the first fallen draft has decided nothing, so the next round may use it again.

A drafter that is broken, whose odds are not numbers, has its drafts taken for certain, too: whatever it says,
the row's tokens have the odds p.

Arrays: B rows, T places of a block, the first T - 1 of them with a draft, V vocabulary.
"""

from collections.abc import Sequence

import mlx.core as mx

from runtime.records import dataclass
from runtime.sampling import noise
from runtime.sampling.distribution import Distribution


@dataclass(frozen=True, slots=True)
class Guesses:
    """The drafts of a block: they are its inputs behind the first."""

    counts: Sequence[int]
    """How many of them are meant, per row."""
    odds: Sequence[mx.array | None] = ()
    """Per row the log-probabilities [1, depth, V] that its drafts were drawn from, None where they were not
    drawn by chance; () when none was. Only rows that reject need any.
    """

    def take(self, rows: Sequence[int]) -> "Guesses":
        return Guesses(
            [self.counts[row] for row in rows], [self.odds[row] for row in rows] if self.odds else ()
        )

    def dense(self, drafts: mx.array, size: int) -> mx.array:
        """Log-probabilities [B, T - 1, V] that `drafts` [B, T - 1] were drawn from."""
        rows, columns = drafts.shape
        odds = self.odds or (None,) * rows
        return mx.concatenate(
            [
                _or_certain(drafts[row : row + 1], size, None if one is None else one[:, :columns])
                for row, one in enumerate(odds)
            ]
        )


def judge(
    own: mx.array,
    drawn: mx.array,
    drafts: mx.array,
    guesses: Guesses,
    seeds: Sequence[int],
    positions: Sequence[int],
) -> mx.array:
    """Tokens, int32 [B, T]: at each place the draft if it stands, else another; equal only if it stands.

    own: log-probabilities [B, T, V] of the rows themselves. drawn: int32 [B, T], tokens drawn from them, for
    places without a draft. drafts: int32 [B, T - 1]. positions: where the token of place 0 will stand.
    """
    columns = drafts.shape[1]
    if columns == 0:
        return drawn
    p = mx.exp(own[:, :columns])
    q = mx.exp(guesses.dense(drafts, own.shape[-1]))
    kept = noise.uniform(noise.keys(seeds, positions, columns, stream=noise.ACCEPT))
    stands = kept * _of(q, drafts) < _of(p, drafts)
    rest = mx.maximum(p - q, 0)
    # Equal odds leave no rest; then the draft stands, though rounding may have said otherwise.
    stands = stands | (rest.max(axis=-1) <= 0)
    other = Distribution(mx.log(rest)).draw(noise.keys(seeds, positions, columns, stream=noise.REST))
    meant = mx.arange(columns)[None] < mx.array(list(guesses.counts))[:, None]
    judged = mx.where(meant, mx.where(stands, drafts, other), drawn[:, :columns])
    return mx.concatenate([judged, drawn[:, columns:]], axis=1)


def _of(odds: mx.array, tokens: mx.array) -> mx.array:
    return mx.take_along_axis(odds, tokens[..., None], axis=-1).squeeze(-1)


def _or_certain(drafts: mx.array, size: int, odds: mx.array | None) -> mx.array:
    """These odds [B, T, V], where there are any and they are numbers."""
    certain = _certain(drafts, size)
    return certain if odds is None else mx.where(mx.isnan(odds).any(axis=-1, keepdims=True), certain, odds)


def _certain(drafts: mx.array, size: int) -> mx.array:
    """Log-probabilities [B, T, V] of drafts [B, T] that no chance was involved in."""
    return mx.where(mx.arange(size) == drafts[..., None], 0.0, -mx.inf)
