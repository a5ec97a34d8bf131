"""Our layer memory dressed as mlx-lm's caches, for one step.

A model class of mlx-lm is handed one cache per layer, asks it for `offset` and for a mask, gives it keys and
values and attends over what comes back. `Attention` answers the same way from a LayerCache of ours. Source of
the conventions: mlx_lm/models/cache.py and base.py, its BatchKVCache for rows at different positions.

Invariants: for rows that stand side by side, keys and masks are those that KVCache and RotatingKVCache would
give; otherwise masks are [B, 1, L, K] over keys whose places are known before they are appended, because
models ask for the mask first.

Dimensions: B rows, L new tokens, H key-value heads, K visible keys.
"""

from typing import Any

import mlx.core as mx

from runtime.cache.layout import Full, Rotating
from runtime.errors import NotSupported
from runtime.step import Step

Mask = mx.array | str | None


class Attention:
    """The memory of a Full or Rotating layer. `given` is what the step wrote, once it has."""

    def __init__(self, cache: Any, spec: Full | Rotating, step: Step) -> None:
        self._cache = cache
        self._step = step
        self._window = spec.window if isinstance(spec, Rotating) else None
        self.offset: int | mx.array = step.offset
        self.given: tuple[mx.array, mx.array] | None = None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write keys and values [B, H, L, D]; all that the step may see, [B, H, K, D], the newest last."""
        if self.given is not None:
            raise NotSupported("a layer that writes twice in a step has no place in layer memory")
        self.given = keys, values
        self.offset = self.offset + keys.shape[2]
        seen, held, mask = self._cache.append(self._step, keys, values)
        if self._window is not None and not _level(self._step):
            order = _alignment(self._step, mask, _before(self._step, self._window) + self._step.width)
            seen, held = (mx.take_along_axis(part, order, axis=2) for part in (seen, held))
        return seen, held

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None, **_: Any) -> Mask:
        """What the N tokens of the step may see of the keys that `update_and_fetch` will return."""
        asked = window_size is not None and self._window is None
        window = window_size or self._window
        key = ("foreign mask", N, return_array, window, self._window)
        return self._step.memo(key, lambda: self._mask(N, window, array=asked or (return_array and N > 1)))

    def _mask(self, width: int, window: int | None, *, array: bool) -> Mask:
        before = _before(self._step, self._window)
        keys = before + width
        if _level(self._step):
            if not array and (window is None or window >= keys):
                return "causal" if width > 1 else None
            queries = mx.arange(before, keys)[:, None]
            return _visible(queries, mx.arange(keys), window)
        starts = mx.array(self._step.starts, dtype=mx.int32)[:, None, None, None]
        first = 0 if self._window is None else starts - before
        return _visible(starts + mx.arange(width)[:, None], first + mx.arange(keys), window)


def _level(step: Step) -> bool:
    return len(set(step.starts)) == 1


def _before(step: Step, window: int | None) -> int:
    """How many keys stand before the step's own: of every row as many as the one that sees most."""
    start = max(step.starts)
    return start if window is None else min(start, window - 1)


def _visible(queries: mx.array, keys: mx.array, window: int | None) -> mx.array:
    """bool, from positions that broadcast to [..., L, K]; places before a row's beginning are negative."""
    seen = (keys <= queries) & (keys >= 0)
    return seen if window is None else seen & (keys > queries - window)


def _alignment(step: Step, mask: mx.array, columns: int) -> mx.array:
    """Which `columns` keys of each row to take so that its newest come last, int32 [B, 1, columns, 1].

    mask: bool [B, 1, L, K] of a bounded layer whose rows stand at different positions. Those that any query
    of the row sees lie in the order of their positions, among others that nobody sees.
    """

    def build() -> tuple[mx.array, mx.array]:
        places = mx.arange(mask.shape[-1])
        order = mx.argsort(mx.where(mask.any(axis=2), places + mask.shape[-1], places), axis=-1)
        return order[..., -columns:][..., None], mask

    # The mask is kept with the answer: while it lives no other can have its identity.
    return step.memo(("foreign order", id(mask)), build)[0]
