"""Gumbel noise g(seed, position, id): the same number wherever, whenever and however often it is asked for.

A token is drawn as argmax over ids of (log p + g). Because g depends on nothing else, a row draws the same
token alone or in a batch, in one step or in a block of drafts, over the whole vocabulary or over a few kept
ids: that is what makes speculation invisible.

Rejection sampling needs two more draws per place, and XTC one, independent of that one. They come from
streams of their own: a stream is part of the key, as the seed and the position are.

Arrays: B rows, T positions, K ids. A key is two 32-bit words per row and position, made on the host.

Sources: Gumbel-max trick, e.g. Maddison et al., "A* Sampling", 2014. Key schedule: SplitMix64, Steele et al.,
"Fast Splittable Pseudorandom Number Generators", 2014. Mixing: the 32-bit permutation "lowbias32" of C.
Wellons' hash-prospector (public domain), before and after the key goes in.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import mlx.core as mx

MASK64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15  # SplitMix64's increment: 2^64 over the golden ratio
SCALE = 2.0**-32 * (1 - 2.0**-22)  # keeps the largest uniform below 1 in float32
HALF = 2.0**-33  # keeps the smallest above 0
BELOW_ONE = 1 - 2.0**-24  # the float32 next to 1
POSITION_BITS = 32  # of a key's place; the stream stands above them
# Streams: the token itself; is the draft kept; what stands in its place; does XTC act.
DRAW, ACCEPT, REST, XTC = 0, 1, 2, 3


def keys(seeds: Sequence[int], positions: Sequence[int], columns: int, *, stream: int = DRAW) -> mx.array:
    """uint32 [B, T, 2]: the keys of `seeds[b]` at positions[b], positions[b] + 1, ...; T is `columns`."""
    rows = zip(seeds, positions, strict=True)
    above = stream << POSITION_BITS
    return mx.array(
        [[_key(seed, above | (first + t)) for t in range(columns)] for seed, first in rows], dtype=mx.uint32
    )


def gumbel(key: mx.array, ids: mx.array) -> mx.array:
    """Standard Gumbel noise, float32 [B, T, K], of these ids (int32 [B, T, K]).

    Values lie between -2.8 and 22.9: 32 bits of uniform noise, resolved finest where the largest values are.
    """
    return _gumbel(key[..., :1], key[..., 1:], _mixed(ids))


def dense_gumbel(key: mx.array, size: int) -> mx.array:
    """The same for all ids in [0, size): float32 [B, T, size]."""
    return _gumbel(key[..., :1], key[..., 1:], _mixed_range(size))


def uniform(key: mx.array) -> mx.array:
    """Noise between 0 and 1, both excluded, float32 [B, T]: one number per key."""
    return _uniform(key[..., 0] * key[..., 1])


def _key(seed: int, place: int) -> tuple[int, int]:
    """The second word becomes a factor, so it is odd: multiplication then loses nothing."""
    word = _splitmix(_splitmix(seed) ^ place)
    return word >> 32, (word & 0xFFFFFFFF) | 1


def _splitmix(word: int) -> int:
    word = (word + GOLDEN) & MASK64
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK64
    return word ^ (word >> 31)


def _fused(function: Callable[..., mx.array]) -> Callable[..., mx.array]:
    """One kernel instead of twenty on a GPU. On a processor MLX would call a C++ compiler, so not there."""
    return mx.compile(function) if mx.default_device().type == mx.DeviceType.gpu else function


def _mix(x: mx.array) -> mx.array:
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


def _uniform(word: mx.array) -> mx.array:
    return _mix(word).astype(mx.float32) * SCALE + HALF


def _mixed(ids: mx.array) -> mx.array:
    return _mix(ids.astype(mx.uint32))


@lru_cache(maxsize=8)
def _mixed_range(size: int) -> mx.array:
    """Half of the work does not depend on the key. Evaluated, so that any thread may use it."""
    mixed = _mixed(mx.arange(size))[None, None]
    mx.eval(mixed)
    return mixed


@_fused
def _gumbel(key0: mx.array, key1: mx.array, mixed: mx.array) -> mx.array:
    """-log(e), where e = -log(1 - v) is exponential and v uniform.

    v is precise near 0, where 1 - v is not; the factor v / (1 - u) repairs the rounding of u = 1 - v to first
    order (Kahan's log1p). On a processor this is several times faster than `mx.log1p`.
    """
    v = _uniform((mixed ^ key0) * key1)
    u = mx.minimum(1 - v, BELOW_ONE)
    return -mx.log(mx.log(u) * (v / (u - 1)))
