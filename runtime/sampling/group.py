"""Rows of a batch that want the same kind of work, drawn in one vectorised pass whatever their numbers.

Arrays: R rows of the group, T columns, V vocabulary.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import mlx.core as mx

from runtime.errors import BadTokenIds
from runtime.nn.operations import ops
from runtime.parts.draws import DrawParams, LogitBiases, PenaltyParams
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.sampling import filters, noise
from runtime.sampling.distribution import Distribution
from runtime.sampling.dry import Repetitions
from runtime.sampling.ends import EarlyEnds
from runtime.sampling.kinds import DrawKind
from runtime.sampling.params import COLD, SamplingParams
from runtime.sampling.penalties import Penalties
from runtime.sampling.rejection import Guesses, judge


@dataclass(frozen=True, slots=True)
class DrawInput:
    """What one step offers to draw from; the fields are the arguments of `Sampler.sample`."""

    logits: mx.array
    positions: Sequence[int]
    history: Sequence[Sequence[int]] | None = None
    inputs: mx.array | None = None
    mask: mx.array | None = None
    guesses: Guesses | None = None

    def take(self, rows: Sequence[int]) -> "DrawInput":
        index = mx.array(list(rows))
        return DrawInput(
            logits=self.logits[index],
            positions=[self.positions[row] for row in rows],
            history=None if self.history is None else [self.history[row] for row in rows],
            inputs=None if self.inputs is None else self.inputs[index],
            mask=None if self.mask is None else self.mask[index],
            guesses=None if self.guesses is None else self.guesses.take(rows),
        )


class RowGroup:
    """The numbers of rows of one kind, as arrays [R, 1, 1]. draws: the same for `Operations.draw`; None
    where that does not do it, or all take the likeliest. biased: what is added to their logits, if any is.
    """

    def __init__(self, kind: DrawKind, params: Sequence[SamplingParams]) -> None:
        self.kind = kind
        self._seeds = [p.seed for p in params]
        self.biased = _biased(params) if kind.biased else None
        self._bias: mx.array | None = None
        self._penalties = Penalties.of(params) if kind.penalised else None
        self._repetitions = Repetitions(params) if kind.dry else None
        self.ends = EarlyEnds(params) if kind.ends else None
        self._temperature = _column([p.temperature for p in params])
        self._typical_p = _column([p.typical_p for p in params])
        self._top_p = _column([p.top_p for p in params])
        self._min_p = _column([p.min_p for p in params])
        self._params = params
        self.draws = None if kind.greedy or kind.by_steps else _draws(params)

    @property
    def penalties(self) -> PenaltyParams | None:
        return None if self._penalties is None else self._penalties.numbers

    def sample(self, block: DrawInput) -> mx.array:
        """Tokens, int32 [R, T]."""
        logits = self.adjusted(block)
        if self.kind.greedy:
            return ops.table.likeliest(logits)
        if self.draws is not None:
            tokens = ops.table.draw(logits, self.draws, block.positions)
            if tokens is not None:
                return tokens
        odds = self.distribution(logits, block.positions)
        tokens = odds.draw(noise.keys(self._seeds, block.positions, logits.shape[1]))
        if not self.kind.rejecting or block.guesses is None:
            return tokens
        assert block.inputs is not None, "the drafts are among the inputs"
        own, drafts = odds.dense(logits.shape[-1]), block.inputs[:, 1:].astype(mx.int32)
        return judge(own, tokens, drafts, block.guesses, self._seeds, block.positions)

    def at_once(self, block: DrawInput) -> mx.array | None:
        """The tokens of `sample` where one operation draws rows of several kinds; else None."""
        if self.kind.greedy:
            return ops.table.likeliest(self.adjusted(block))
        if self.draws is None or block.logits.dtype != mx.float32 or not ops.by_kernels("draw"):
            return None
        return ops.table.draw(self.adjusted(block), self.draws, block.positions)

    def draft(self, block: DrawInput) -> tuple[mx.array, mx.array | None]:
        """Tokens, int32 [R, T], and where rows reject, the log-probabilities [R, T, V] they came from."""
        if not self.kind.rejecting:
            return self.sample(block), None
        logits = self.adjusted(block)
        odds = self.distribution(logits, block.positions)
        tokens = odds.draw(noise.keys(self._seeds, block.positions, logits.shape[1]))
        return tokens, odds.dense(logits.shape[-1])

    def adjusted(self, block: DrawInput) -> mx.array:
        """Logits after penalties, bias and mask, [R, T, V]; float32 unless nothing acts on them."""
        logits = self._penalised(block)
        if self.kind.biased:
            logits = logits.astype(mx.float32) + self._dense_bias(logits.shape[-1])
        if block.mask is not None:
            logits = logits.astype(mx.float32)
            by_bits = block.mask.dtype == mx.bool_
            logits = filters.keep(logits, block.mask) if by_bits else logits + block.mask
        if self.ends is not None and self.ends.early(block.positions):
            logits = self.ends.apply(logits.astype(mx.float32), block.positions)
        return logits

    def _penalised(self, block: DrawInput) -> mx.array:
        logits = block.logits
        if not self.kind.wants_history:
            return logits
        if block.history is None or block.inputs is None:
            raise ValueError("rows with penalties need their history and the step's inputs")
        logits = logits.astype(mx.float32)
        if self._penalties is not None:
            logits = self._penalties.apply(logits, block.history, block.inputs)
        if self._repetitions is not None:
            logits = self._repetitions.apply(logits, block.history, block.inputs)
        return logits

    def distribution(self, logits: mx.array, positions: Sequence[int]) -> Distribution:
        """What the filters leave of adjusted logits [R, T, V], for rows that are not greedy."""
        kind, values, ids = self.kind, logits.astype(mx.float32), None
        if kind.top_n_sigma:
            values = filters.top_n_sigma(values, _column([p.top_n_sigma for p in self._params]))
        if 0 < kind.top_k < values.shape[-1]:
            ids, values = filters.best(values, kind.top_k)
        plain, values = values, self._tempered(values)
        if kind.typical:
            values = filters.typical(values, self._typical_p)
        if kind.top_p:
            values = filters.top_p(values, self._top_p)
        if kind.min_p:
            values = filters.min_p(values, self._min_p)
        if kind.xtc:
            values = self._without_top_choices(values, plain, positions)
        return Distribution(values, ids)

    def _tempered(self, values: mx.array) -> mx.array:
        if not self.kind.dynamic:
            return values / self._temperature
        lowest = [max(p.temperature - p.dynatemp_range, COLD) for p in self._params]
        highest = [p.temperature + p.dynatemp_range for p in self._params]
        exponent = _column([p.dynatemp_exponent for p in self._params])
        return filters.tempered(values, _column(lowest), _column(highest), exponent)

    def _without_top_choices(self, values: mx.array, plain: mx.array, positions: Sequence[int]) -> mx.array:
        """The coin is tossed for a position, apart from what is drawn there: drafts meet the same."""
        coins = noise.uniform(noise.keys(self._seeds, positions, values.shape[1], stream=noise.XTC))
        acts = coins[..., None] < _column([p.xtc_probability for p in self._params])
        return filters.xtc(values, plain, _column([p.xtc_threshold for p in self._params]), acts)

    def _dense_bias(self, size: int) -> mx.array:
        """float32 [R, 1, V], built at the first step, when the vocabulary's size is known."""
        if self._bias is None:
            assert self.biased is not None
            rows = [row for row, its in enumerate(self.biased.ids) for _ in its]
            ids = [token for its in self.biased.ids for token in its]
            if max(ids) >= size:
                raise BadTokenIds(f"the id {quoted(max(ids))} has a bias; the vocabulary has {size}")
            values = mx.array([value for its in self.biased.values for value in its], dtype=mx.float32)
            empty = mx.zeros((len(self.biased.ids), 1, size), dtype=mx.float32)
            self._bias = empty.at[mx.array(rows), 0, mx.array(ids)].add(values)
        return self._bias


def _draws(params: Sequence[SamplingParams]) -> DrawParams:
    return DrawParams(
        tuple(p.seed for p in params),
        tuple(1.0 if p.greedy else p.temperature for p in params),
        tuple(1 if p.greedy else p.top_k for p in params),
        tuple(p.top_p for p in params),
        tuple(p.min_p for p in params),
        tuple(p.typical_p for p in params),
    )


def _biased(params: Sequence[SamplingParams]) -> LogitBiases:
    by_row = [_bias(p) for p in params]
    return LogitBiases(tuple(ids for ids, _ in by_row), tuple(values for _, values in by_row))


def _bias(params: SamplingParams) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """A row's ids, and what each has added. Rows without a bias of their own share their model's ids."""
    if not params.logit_bias:
        return params.suppressed, _never(len(params.suppressed))
    all_of = {**params.logit_bias, **dict.fromkeys(params.suppressed, -math.inf)}
    return tuple(all_of), tuple(all_of.values())


@lru_cache(maxsize=8)
def _never(count: int) -> tuple[float, ...]:
    return (-math.inf,) * count


def _column(values: Sequence[float]) -> mx.array:
    return mx.array(list(values), dtype=mx.float32)[:, None, None]
