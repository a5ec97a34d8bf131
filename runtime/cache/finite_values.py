"""What is not a number stays with those who see it.

Where keys and values are attended to as arrays, a mask hides a key by the score that it makes minus infinity
of, and its value by the zero that it is multiplied by. Zero times NaN is NaN: a token whose numbers have
overflowed would reach queries before it, and, from a slot that nobody has used since, the next conversation
in its row. So a value that is none is zero in memory, and its key is none instead: that is hidden, or makes
NaN of all that its token is seen by.
"""

from collections.abc import Callable
from functools import cache

import mlx.core as mx

_Cleaned = tuple[mx.array, mx.array]


def with_finite_values(keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
    """Keys [..., Dk] and values [..., Dv] of new tokens, as memory may have them."""
    if keys.shape[-1] == values.shape[-1]:
        return _alike()(keys, values)
    none = values * 0
    return keys + none.sum(axis=-1, keepdims=True), mx.where(none == 0, values, 0)


def latents_with_finite_values(latents: mx.array, value_size: int) -> mx.array:
    """The same of keys [..., D] in whose first `value_size` numbers their values lie. Where these are all of
    a key, nothing is left to say it by: they stay as they are, and whoever reads them has `finite_values_of`.
    """
    if latents.shape[-1] <= value_size:
        return latents
    values, keys = latents[..., :value_size], latents[..., value_size:]
    none = values * 0
    marked = keys + none.sum(axis=-1, keepdims=True)
    return mx.concatenate([mx.where(none == 0, values, 0), marked], axis=-1)


def finite_values_of(seen: mx.array, value_size: int) -> mx.array:
    """The values in remembered keys [..., D]: their first `value_size` numbers, and zeros where these are
    none.
    """
    values = seen[..., :value_size]
    return values if seen.shape[-1] > value_size else mx.where(values * 0 == 0, values, 0)


def _clean(keys: mx.array, values: mx.array) -> _Cleaned:
    none = values * 0  # NaN, where a number is NaN or infinite
    return keys + none, mx.where(none == 0, values, 0)


@cache
def _alike() -> Callable[[mx.array, mx.array], _Cleaned]:
    """In one kernel where launching them takes time. On a processor MLX would call a compiler for it."""
    on_gpu = mx.default_device().type == mx.DeviceType.gpu
    return mx.compile(_clean, shapeless=True) if on_gpu else _clean
