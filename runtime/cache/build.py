"""From a layout to memory: which class of cache each layer gets."""

from collections.abc import Container, Sequence

import mlx.core as mx

from runtime.cache.attention import KVCache
from runtime.cache.budget import Budget
from runtime.cache.claims import Claims
from runtime.cache.encoder import EncoderCache
from runtime.cache.layout import (
    SLACK,
    Chunked,
    Encoder,
    Full,
    LayerSpec,
    Pooled,
    Recurrent,
    Rotating,
    Shared,
    Stateless,
)
from runtime.cache.memory import LayerMemory, OwnCache
from runtime.cache.pooled import PooledCache
from runtime.cache.recurrent import RecurrentCache
from runtime.cache.remote import EncoderElsewhere, KVElsewhere, PooledElsewhere, RecurrentElsewhere
from runtime.cache.rows import KVRows
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class _Manner:
    """How every layer of a memory keeps its rows; fields as the parameters of `build_memory`."""

    rows: int
    dtype: mx.Dtype
    slack: int
    kept_format: str | None
    grain: int
    budget: Budget
    """Of what does not grow by tokens."""
    of_tokens: Budget
    """Of what does."""

    def cache(self, spec: LayerSpec, *, here: bool) -> OwnCache | None:
        """A layer's own memory; None for one that has none."""
        match spec:
            case Full() | Rotating() | Chunked():
                return self._attention(spec, here=here)
            case Pooled():
                return self._pooled(spec, here=here)
            case Recurrent():
                kind = RecurrentCache if here else RecurrentElsewhere
                return kind(spec, rows=self.rows, dtype=self.dtype, slack=self.slack, budget=self.budget)
            case Encoder():
                encoded = EncoderCache if here else EncoderElsewhere
                return encoded(spec, rows=self.rows, dtype=self.dtype, budget=self.budget)
            case Shared() | Stateless():
                return None

    def _attention(self, spec: Full | Rotating | Chunked, *, here: bool) -> KVCache:
        kind = KVCache if here else KVElsewhere
        return kind(
            spec,
            rows=self.rows,
            dtype=self.dtype,
            slack=self.slack,
            kept_format=self.kept_format,
            grain=self.grain,
            budget=self.of_tokens,
        )

    def _pooled(self, spec: Pooled, *, here: bool) -> PooledCache:
        kind = PooledCache if here else PooledElsewhere
        return kind(spec, rows=self.rows, dtype=self.dtype, grain=self.grain, budget=self.of_tokens)


def build_memory(
    layout: Sequence[LayerSpec],
    *,
    rows: int = 1,
    dtype: mx.Dtype = mx.float32,
    slack: int = SLACK,
    kept_format: str | None = None,
    grain: int = 256,
    budget: Budget | None = None,
    by_pages: bool = False,
    elsewhere: Container[int] = (),
) -> LayerMemory:
    """Memory for a layout. `slack`, `kept_format` and `grain` as in KVRows; all layers share the budget.

    by_pages: what rows have written is counted, and not the room of all rows (`runtime.cache.claims`).
    elsewhere: layers of other machines (`runtime.cache.remote`).
    """
    budget = budget or Budget()
    of_tokens = Budget() if by_pages else budget
    manner = _Manner(rows, dtype, slack, kept_format, grain, budget, of_tokens)
    own = [manner.cache(spec, here=i not in elsewhere) for i, spec in enumerate(layout)]
    made = LayerMemory(layout, own, rows=rows, budget=budget)
    by_token = [one for one in own if isinstance(one, KVRows)]
    if by_pages and by_token:
        made.claims = Claims(by_token, budget, rows)
    return made
