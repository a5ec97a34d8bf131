"""What is left to draw from: some ids of the vocabulary, or all, with their log-weights.

Arrays: B rows, T positions, K kept ids, V vocabulary.
"""

import mlx.core as mx

from runtime.nn.operations import ops
from runtime.records import dataclass
from runtime.sampling.noise import dense_gumbel, gumbel


@dataclass(frozen=True, slots=True)
class Distribution:
    """What tokens are drawn from."""

    values: mx.array
    """float32 [B, T, K], log-probabilities up to a constant, -inf for ids that cannot be drawn."""
    ids: mx.array | None = None
    """int32 [B, T, K], the ids the values belong to; None when K = V and the index is the id."""

    def draw(self, key: mx.array) -> mx.array:
        """The token of each position, int32 [B, T], under the noise that `key` (`noise.keys`) names."""
        if self.ids is None:
            return ops.table.likeliest(self.values + dense_gumbel(key, self.values.shape[-1]))
        place = mx.argmax(self.values + gumbel(key, self.ids), axis=-1, keepdims=True)
        return mx.take_along_axis(self.ids, place, axis=-1).squeeze(-1)

    def dense(self, size: int) -> mx.array:
        """Log-probabilities of all ids in [0, size): float32 [B, T, size]."""
        normalised = self.values - mx.logsumexp(self.values, axis=-1, keepdims=True)
        if self.ids is None:
            return normalised
        nothing = mx.full((*self.values.shape[:-1], size), -mx.inf)
        return mx.put_along_axis(nothing, self.ids, normalised, axis=-1)
