"""From a layout to memory: which class of cache each layer gets."""

from collections.abc import Callable, Container, Sequence

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


def build_memory(
    layout: Sequence[LayerSpec],
    *,
    rows: int = 1,
    dtype: mx.Dtype = mx.float32,
    slack: int = SLACK,
    kept_format: str | None = None,
    grain: int = 256,
    budget: Budget | None = None,
    shown_by: int | None = None,
    by_pages: bool = False,
    elsewhere: Container[int] = (),
    kind: Callable[..., LayerMemory] = LayerMemory,
) -> LayerMemory:
    """Memory for a layout. `slack`, `kept_format`, `grain` and `shown_by` as in KVRows; all layers share the
    budget.

    by_pages: what rows have written is counted, and not the room of all rows (`runtime.cache.claims`).

    elsewhere: layers of other machines (`runtime.cache.remote`). kind: makes it, as LayerMemory does.
    """
    budget = budget or Budget()
    of_tokens = Budget() if by_pages else budget

    def build(i: int, spec: LayerSpec) -> OwnCache | None:
        match spec:
            case Full() | Rotating() | Chunked():
                return (KVElsewhere if i in elsewhere else KVCache)(
                    spec,
                    rows=rows,
                    dtype=dtype,
                    slack=slack,
                    kept_format=kept_format,
                    grain=grain,
                    budget=of_tokens,
                    shown_by=shown_by,
                )
            case Pooled():
                pooled = PooledElsewhere if i in elsewhere else PooledCache
                return pooled(spec, rows=rows, dtype=dtype, grain=grain, budget=of_tokens)
            case Recurrent():
                recurrent = RecurrentElsewhere if i in elsewhere else RecurrentCache
                return recurrent(spec, rows=rows, dtype=dtype, slack=slack, budget=budget)
            case Encoder():
                encoded = EncoderElsewhere if i in elsewhere else EncoderCache
                return encoded(spec, rows=rows, dtype=dtype, budget=budget)
            case Shared() | Stateless():
                return None

    own = [build(i, spec) for i, spec in enumerate(layout)]
    made = kind(layout, own, rows=rows, budget=budget)
    by_token = [one for one in own if isinstance(one, KVRows)]
    if by_pages and by_token:
        made.claims = Claims(by_token, budget, rows)
    return made
