"""Log-probabilities as a user reads them: of the raw logits, before penalties, temperature and filters.

Arrays: B rows, T positions, N alternatives, V vocabulary. All lazy.
"""

import mlx.core as mx

from runtime.records import dataclass
from runtime.sampling.filters import best


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log-probabilities of the tokens that were chosen, and of the likeliest."""

    chosen: mx.array
    """float32 [B, T]."""
    ids: mx.array
    """int32 [B, T, N]: the likeliest, best first."""
    values: mx.array
    """float32 [B, T, N]: theirs."""

    @property
    def arrays(self) -> tuple[mx.array, mx.array, mx.array]:
        """What is to be computed for them."""
        return self.chosen, self.ids, self.values


def logprobs(logits: mx.array, tokens: mx.array, alternatives: int) -> Logprobs:
    """Of tokens [B, T] drawn from logits [B, T, V], and of the N = min(alternatives, V) likeliest ids."""
    raw = logits.astype(mx.float32)
    total = mx.logsumexp(raw, axis=-1, keepdims=True)
    chosen = mx.take_along_axis(raw, tokens[..., None], axis=-1) - total
    ids, values = _sorted_best(raw, alternatives)
    return Logprobs(chosen.squeeze(-1), ids, values - total)


def _sorted_best(raw: mx.array, count: int) -> tuple[mx.array, mx.array]:
    if count == 0:
        none = (*raw.shape[:-1], 0)
        return mx.zeros(none, dtype=mx.int32), mx.zeros(none)
    ids, values = best(raw, min(count, raw.shape[-1]))
    order = mx.argsort(-values, axis=-1)
    return mx.take_along_axis(ids, order, axis=-1), mx.take_along_axis(values, order, axis=-1)
