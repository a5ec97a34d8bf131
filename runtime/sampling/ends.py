"""Answers of a least length: the ids that end a text are not drawn before a position.

They stay where nothing else may be drawn, as where a grammar allows nothing but the end.

Arrays: B rows, T columns, V vocabulary.
"""

from collections.abc import Sequence

import mlx.core as mx

from runtime.sampling.params import SamplingParams


class EarlyEnds:
    """Those of B rows."""

    def __init__(self, params: Sequence[SamplingParams]) -> None:
        self._params = params

    def early(self, positions: Sequence[int]) -> bool:
        """Is some row not yet where it may end? positions: where the next token of each will stand."""
        return any(
            position < its.ends_from and its.ends
            for its, position in zip(self._params, positions, strict=True)
        )

    def apply(self, logits: mx.array, positions: Sequence[int]) -> mx.array:
        """What is left of logits [B, T, V], float32, that everything else which forbids ids has seen.
        Column t draws the token of positions[b] + t.
        """
        size = logits.shape[2]
        found = [
            (row, column, token)
            for row, (its, position) in enumerate(zip(self._params, positions, strict=True))
            for column in range(min(logits.shape[1], its.ends_from - position))
            for token in its.ends
            if token < size
        ]
        if not found:
            return logits
        rows, columns, tokens = (mx.array(places) for places in zip(*found, strict=True))
        left = logits.at[rows, columns, tokens].add(-mx.inf)
        return mx.where(left.max(axis=-1, keepdims=True) > -mx.inf, left, logits)
