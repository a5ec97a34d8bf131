"""Repeat, presence and frequency penalties from the ids that came before.

Arrays: B rows, T columns of a step, H recent ids, V vocabulary. Column t of a step has seen the step's inputs
up to and including t, so in a block of drafts each column is penalised as if the drafts before it had been
drawn: what plain decoding would have seen there.
"""

from collections.abc import Sequence

import mlx.core as mx

from runtime.nn.operations import ops
from runtime.parts.draws import PenaltyParams
from runtime.records import dataclass
from runtime.sampling.params import SamplingParams
from runtime.sampling.ranges import WHOLE_CONTEXT

ABSENT = -1


@dataclass(frozen=True, slots=True)
class Penalties:
    """The penalties of B rows."""

    numbers: PenaltyParams
    """The same as plain numbers."""
    repeat: mx.array
    """float32 [B, 1, 1]."""
    presence: mx.array
    """float32 [B, 1, 1]."""
    frequency: mx.array
    """float32 [B, 1, 1]."""

    @classmethod
    def of(cls, params: Sequence[SamplingParams]) -> "Penalties":
        def column(values: Sequence[float]) -> mx.array:
            return mx.array(list(values), dtype=mx.float32)[:, None, None]

        by = PenaltyParams(
            tuple(p.repeat_last_n for p in params),
            tuple(p.repeat_penalty for p in params),
            tuple(p.presence_penalty for p in params),
            tuple(p.frequency_penalty for p in params),
        )
        return cls(by, column(by.repeat), column(by.presence), column(by.frequency))

    def apply(self, logits: mx.array, history: Sequence[Sequence[int]], inputs: mx.array) -> mx.array:
        """Penalised logits [B, T, V], float32. history: each row's ids before the step; inputs: int32 [B, T].

        A repeat penalty acts on the logit as it came, then presence and frequency are subtracted.
        """
        found = ops.table.penalise(logits, self.numbers, history, inputs)
        if found is not None:
            return found
        recent = self.recent(history, inputs)
        counts = _counts(recent, logits.shape)
        ids = mx.maximum(recent, 0)
        seen = mx.take_along_axis(counts, ids, axis=-1)
        before = mx.take_along_axis(logits, ids, axis=-1)
        after = mx.where(before < 0, before * self.repeat, before / self.repeat)
        after = after - self.presence - self.frequency * seen
        # an id that stands twice is written twice, with one value; padding writes back what id 0 has coming
        return mx.put_along_axis(logits, ids, mx.where(seen > 0, after, before), axis=-1)

    def recent(self, history: Sequence[Sequence[int]], inputs: mx.array) -> mx.array:
        """int32 [B, T, H]: the ids that column t of row b looks back on, padded with ABSENT at the front."""
        columns = inputs.shape[1]
        reach = [
            len(past) + columns if n == WHOLE_CONTEXT else n
            for n, past in zip(self.numbers.windows, history, strict=True)
        ]
        width = max(1, min(max(reach), max(len(past) for past in history) + columns))
        padded = [
            [ABSENT] * max(0, width - len(past)) + list(past[max(0, len(past) - width) :]) for past in history
        ]
        line = mx.concatenate([mx.array(padded, dtype=mx.int32), inputs.astype(mx.int32)], axis=-1)
        # column t sees line[t + 1 : t + 1 + width], of which the last reach[b]
        offsets = mx.arange(1, columns + 1)[:, None] + mx.arange(width)[None]
        windows = line[:, offsets]
        outside = mx.arange(width)[None] < width - mx.minimum(mx.array(reach), width)[:, None]
        return mx.where(outside[:, None], ABSENT, windows)


def _counts(recent: mx.array, shape: tuple[int, ...]) -> mx.array:
    """How often each id stands in `recent`: float32 [B, T, V]."""
    rows = mx.arange(shape[0])[:, None, None]
    columns = mx.arange(shape[1])[None, :, None]
    present = (recent != ABSENT).astype(mx.float32)
    return mx.zeros(shape, dtype=mx.float32).at[rows, columns, mx.maximum(recent, 0)].add(present)
