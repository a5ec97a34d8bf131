"""Tokens on their way from the device to the host."""

from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from runtime.engine.request import TokenLogprob
from runtime.engine.row import Row
from runtime.sampling.logprobs import Logprobs


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens [n, L] drawn for these rows, not read back yet.

    broken: bool [n, L], whether the logits were no numbers; None where that was not looked at (see Drawing).
    """

    rows: list[Row]
    tokens: mx.array
    logprobs: Logprobs | None = None
    broken: mx.array | None = None

    @property
    def arrays(self) -> list[mx.array]:
        """What is to be computed for it."""
        return [self.tokens] if self.broken is None else [self.tokens, self.broken]

    def is_broken(self, place: int, column: int) -> bool:
        """Was there nothing to draw this token from?"""
        return self.broken is not None and bool(self.broken[place, column].item())

    def details(self, place: int, column: int) -> TokenLogprob | None:
        """What a row that asked for log-probabilities gets of one token."""
        wanted = self.rows[place].request.top_logprobs
        if self.logprobs is None or wanted is None:
            return None
        of = self.logprobs
        ids = cast("list[int]", of.ids[place, column, :wanted].tolist())
        values = cast("list[float]", of.values[place, column, :wanted].tolist())
        chosen = cast("float", of.chosen[place, column].item())
        token = cast("int", self.tokens[place, column].item())
        return TokenLogprob(token, chosen, tuple(zip(ids, values, strict=True)))
