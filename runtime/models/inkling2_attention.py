"""Inkling 2's attention: convolved keys and values, heads of a greatest length, sinks of tokens, gates."""

from collections.abc import Sequence
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import AttentionCache, ScanningCache
from runtime.cpu.query_parts import of_tokens
from runtime.models.inkling import ShortConv as Mixed
from runtime.models.inkling2_config import Config
from runtime.models.inkling_config import Growing
from runtime.nn.activation import sigmoid
from runtime.nn.attention.attend import attend
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import rms
from runtime.nn.operations import ops
from runtime.nn.positions.relative_bias import by_distance
from runtime.nn.scans.causal_conv import last_inputs
from runtime.step import Step


class ShortConv(Mixed):
    """Both, scaled as if they were as many as there are taps, and one."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__(channels, taps)
        self._share = (taps + 1) ** -0.5

    def over(
        self, x: mx.array, before: mx.array, counts: mx.array | None, *_: mx.array
    ) -> tuple[mx.array, mx.array]:
        mixed, after = super().over(x, before, counts)
        return mixed * self._share, after


class DynamicConv(Module):
    """The same by filters that each token makes, one for each head of keys, beside those that are stored."""

    def __init__(self, hidden: int, heads: int, size: int, taps: int) -> None:
        super().__init__()
        self.static_weight = mx.zeros((taps, heads * size))
        self.weight_proj = nn.Linear(hidden, heads * taps, bias=False)
        self._heads, self._share = heads, (2 * taps + 1) ** -0.5

    def over(
        self, x: mx.array, before: mx.array, counts: mx.array | None, *filters: mx.array
    ) -> tuple[mx.array, mx.array]:
        """filters: one array [B, L, H * taps], what `weight_proj` makes of each token."""
        taps, width = self.static_weight.shape[0], x.shape[1]
        window = mx.concatenate([before.astype(x.dtype), x], axis=1)
        own = mx.unflatten(filters[0].astype(mx.float32), -1, (self._heads, taps))
        static = mx.unflatten(self.static_weight.astype(mx.float32), -1, (self._heads, -1))
        out = mx.unflatten(x.astype(mx.float32), -1, (self._heads, -1))
        for behind in range(taps):
            at = taps - 1 - behind
            part = mx.unflatten(window[:, at : at + width].astype(mx.float32), -1, (self._heads, -1))
            out = out + part * (static[behind] + own[..., behind : behind + 1])
        return (out.flatten(-2) * self._share).astype(x.dtype), last_inputs(window, taps - 1, counts)


def shortened(x: mx.array, longest: float) -> mx.array:
    """Vectors along the last axis, in float32, those that are longer made as long."""
    length = mx.sqrt(x.square().sum(axis=-1, keepdims=True))
    return x * mx.minimum(longest / (length + 1e-6), 1.0)


class Clip(Module):
    """Heads [B, L, H, K] of K numbers, times a stored scale, no longer than that."""

    def __init__(self, heads: int, size: int, longest: float) -> None:
        super().__init__()
        self.scale = mx.ones((heads, size))
        self._longest = longest

    def __call__(self, x: mx.array) -> mx.array:
        return shortened(x.astype(mx.float32) * self.scale.astype(mx.float32), self._longest)


class ClippedHeads(Module):
    """[B, L, D] -> heads [B, H, L, K] in float32, which grow with their place where that is said."""

    def __init__(self, hidden: int, heads: int, size: int, longest: float, growing: Growing | None) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, heads * size, bias=False)
        self.norm = Clip(heads, size, longest)
        self._heads, self._growing = heads, growing

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        heads = mx.unflatten(linear(self.linear, x, step), -1, (self._heads, -1))
        clipped = self.norm(heads).swapaxes(1, 2)
        times = None if self._growing is None else self._growing.of_step(step)
        return clipped if times is None else clipped * times


class Liked(ClippedHeads):
    def __init__(self, config: Config, extent: int, growing: Growing | None) -> None:
        super().__init__(config.hidden_size, config.heads, config.relative, config.longest[1], growing)
        self.proj = mx.zeros((config.relative, extent))

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        liked = super().__call__(x, step).astype(x.dtype)
        return ops.table.matmul(liked, self.proj.astype(x.dtype))


class Convolved(Module):
    """Of keys, or of values."""

    def __init__(self, config: Config, *, dynamic: bool) -> None:
        super().__init__()
        hidden, groups, size, taps = config.hidden_size, config.kv_heads, config.head_dim, config.taps
        self.linear = nn.Linear(hidden, groups * size, bias=False)
        self.sconv: DynamicConv | ShortConv = (
            DynamicConv(hidden, groups, size, taps) if dynamic else ShortConv(groups * size, taps)
        )


class Gated(Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.linear = nn.Linear(inner, hidden, bias=False)

    def __call__(self, seen: mx.array, x: mx.array, step: Step) -> mx.array:
        gate = sigmoid(linear(self.gate_proj, x, step).astype(mx.float32))
        return linear(self.linear, (seen.astype(mx.float32) * gate).astype(x.dtype), step)


class Attention(Module):
    memories: ClassVar[None] = None
    """All of its layer's (`runtime.ranks.convolved_attention`)."""

    def __init__(self, config: Config, extent: int, growing: Growing | None) -> None:
        """config: that of the layer. growing None: it has a window."""
        super().__init__()
        hidden, dynamic = config.hidden_size, growing is not None
        self.q_proj = ClippedHeads(hidden, config.heads, config.head_dim, config.longest[0], growing)
        self.k_proj = Convolved(config, dynamic=dynamic)
        self.v_proj = Convolved(config, dynamic=dynamic)
        self.o_proj = Gated(hidden, config.heads * config.head_dim)
        self.sink_proj = nn.Linear(hidden, config.heads, bias=False)
        self.relative_position_bias = Liked(config, extent, growing)
        self._heads, self._kv_heads, self._scale = config.heads, config.kv_heads, config.head_dim**-0.5
        self._longest, self._eps = config.longest[0], config.norm_eps

    def __call__(
        self, reads: Sequence[mx.array], step: Step, last: ScanningCache, cache: AttentionCache
    ) -> mx.array:
        """reads: what queries, keys and values are made of."""
        x, *others = reads
        keys, values = self._convolved(others, step, last)
        keys = shortened(keys.astype(mx.float32), self._longest).astype(x.dtype).swapaxes(1, 2)
        values = rms(values, self._eps).swapaxes(1, 2)
        queries = self.q_proj(x, step).astype(x.dtype)
        liked = self.relative_position_bias(x, step)
        # A sink is one more score. Less it, all others are what they are beside one of 0.
        sink = linear(self.sink_proj, x, step).swapaxes(1, 2)[..., None]

        def bias(places: mx.array, asking: range) -> mx.array:
            return by_distance(liked, step, places, asking) - of_tokens(sink, asking)

        none = mx.zeros((self._heads,), x.dtype)
        seen = attend(step, cache, queries, keys, values, scale=self._scale, sinks=none, bias=bias)
        return self.o_proj(seen, x, step)

    @property
    def head_counts(self) -> tuple[int, int]:
        """See `runtime.nn.attention.self_attention.Attention`, and so for the next."""
        return self._heads, self._kv_heads

    def of_heads(self, heads: int, groups: int) -> dict[str, Any]:
        made = {"_heads": heads, "q_proj._heads": heads, "relative_position_bias._heads": heads}
        filters = {f"{name}.sconv._heads": groups for name in ("k_proj", "v_proj")}
        return {**made, "_kv_heads": groups, **filters}

    def _convolved(
        self, reads: Sequence[mx.array], step: Step, last: ScanningCache
    ) -> tuple[mx.array, mx.array]:
        """Keys and values by heads, [B, L, G, K] of G heads."""
        parts = self.k_proj, self.v_proj
        made = [linear(part.linear, x, step) for part, x in zip(parts, reads, strict=True)]
        for part, x in zip(parts, reads, strict=True):
            if isinstance(part.sconv, DynamicConv):
                made.append(linear(part.sconv.weight_proj, x, step))
        both = mx.unflatten(last.scan(step, self._mixed, *made), -1, (2 * self._kv_heads, -1))
        return both[:, :, : self._kv_heads], both[:, :, self._kv_heads :]

    def _mixed(
        self,
        states: dict[str, mx.array],
        keys: mx.array,
        values: mx.array,
        *filters: mx.array,
        counts: mx.array | None,
    ) -> tuple[mx.array, dict[str, mx.array]]:
        keys, last_keys = self.k_proj.sconv.over(keys, states["keys"], counts, *filters[:1])
        values, last_values = self.v_proj.sconv.over(values, states["values"], counts, *filters[1:])
        return mx.concatenate([keys, values], axis=-1), {"keys": last_keys, "values": last_values}
