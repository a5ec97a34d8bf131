"""Queries that grow with the logarithm of their position, past the length a model was trained at, so that
attention stays sharp over long contexts (Llama 4, Ministral 3, Mistral 4).
"""

import mlx.core as mx

from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class AttentionTemperature:
    """A query at position p is multiplied by 1 + slope * ln(1 + floor(p / trained))."""

    slope: float
    trained: int

    def __call__(self, queries: mx.array, step: Step) -> mx.array:
        """queries [B, H, L, K] of K numbers at the positions of a step."""
        factors = self.factors(step)
        return queries if factors is None else queries * factors[:, None, :, None].astype(queries.dtype)

    def factors(self, step: Step) -> mx.array | None:
        """float32 [B, L]; None where all of them are 1."""
        if not self.slope or not step.may_reach(self.trained):
            return None
        return step.memo(self, lambda: self._factors(step))

    def _factors(self, step: Step) -> mx.array:
        return 1 + self.slope * mx.log1p(mx.floor(step.positions / self.trained))
