"""How tokens are drawn, as operations take it: plain numbers of several rows."""

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx

from runtime.records import dataclass


class DrawParams(NamedTuple):
    """How the tokens of R rows are drawn (`runtime.sampling`); each field has one number per row."""

    seeds: tuple[int, ...]
    temperatures: tuple[float, ...]
    """Above 0."""
    top_k: tuple[int, ...]
    """0: all ids; 1: the likeliest, and of equals the first."""
    top_p: tuple[float, ...]
    """1: all."""
    min_p: tuple[float, ...]
    """0: all."""
    typical_p: tuple[float, ...]
    """1: all."""


@dataclass(frozen=True, slots=True, eq=False)
class LogitBiases:
    """What is added to the logits of R rows. The same object as long as the rows are the same."""

    ids: tuple[tuple[int, ...], ...]
    """Of each row."""
    values: tuple[tuple[float, ...], ...]
    """For each of a row's ids; -inf: it is never drawn."""


class PenaltyParams(NamedTuple):
    """How the logits of ids that came before are lowered, for R rows (`runtime.sampling.penalties`); each
    field has one number per row.
    """

    windows: tuple[int, ...]
    """How many ids a row looks back on; -1: all."""
    repeat: tuple[float, ...]
    presence: tuple[float, ...]
    frequency: tuple[float, ...]

    def recent(self, row: int, ids: Sequence[int], stop: int) -> Sequence[int]:
        """The ids that the row looks back on, of the first `stop` of its ids."""
        window = self.windows[row]
        return ids[0 if window < 0 else max(stop - window, 0) : stop]


class GuessParams(NamedTuple):
    """How the tokens that follow a step's are drawn."""

    ids: int | None
    """Only from so many first ids of the vocabulary; None: from all."""
    draws: DrawParams | None
    """None: the likeliest."""
    positions: Sequence[int]
    """Of each row, the position of the first token that is drawn."""
    looks: bool = False
    """Say of each token whether its logits are numbers; only where one is drawn behind each of a step's."""
    penalised: tuple[PenaltyParams, Sequence[Sequence[int]]] | None = None
    """Penalties, and each row's ids to which they apply: where one token is drawn behind each of a step's,
    those before the step; else all that are known.
    """
    biased: LogitBiases | None = None
    """Added after that."""


class NextTokens(NamedTuple):
    """Tokens that follow those of a step, of n rows."""

    tokens: mx.array
    """int32 [n, L]."""
    broken: mx.array | None
    """bool [n, L], whether one was drawn from logits that are not numbers; None where nobody looked."""
