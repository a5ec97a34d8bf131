"""Sublayers put together from a column's own operations: what the table's fused operations mean, and what the
columns without kernels of their own compute.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import mlx.core as mx

from runtime.cache.protocol import AttentionCache, StepCache
from runtime.parts.attention import AttentionParts, Scoring
from runtime.parts.feed_forward import ExpertParts, FeedForwardParts
from runtime.step import Step

RELU: Mapping[str, Any] = {"relu": lambda x: mx.maximum(x, 0)}
"""An activation that is not a field of a column."""


def by_name(column: Any, others: Mapping[str, Any]) -> dict[str, Any]:
    """What a column computes, and under other names what these do."""
    return {**others, **{field.name: getattr(column, field.name) for field in fields(column)}}


class Composed:
    """of: functions by their names in `runtime.nn.operations.signatures.Operations`, and activations by
    theirs.
    """

    def __init__(self, of: Mapping[str, Any]) -> None:
        self._of = of

    def table(self) -> dict[str, Any]:
        names = ("projections", "closing", "feed_forward", "attention", "experts", "layers")
        return {name: getattr(self, name) for name in names}

    def projections(self, modules: Sequence[Any], x: mx.array) -> Sequence[mx.array]:
        return [self._of["linear"](module, x) for module in modules]

    def closing(self, module: Any, x: mx.array, to: mx.array, after: Any) -> mx.array:
        y = self._of["linear"](module, x)
        return to + y if after is None else self._of["add_rms_norm"](after, y, to)

    def feed_forward(self, x: mx.array, by: FeedForwardParts) -> mx.array:
        parts = self.projections(by.opening, x if by.norm is None else self._normed(by.norm, x))
        if by.halves:
            parts = list(mx.split(parts[0], 2, axis=-1))
        if by.gate_scale != 1:
            parts = [parts[0] * by.gate_scale, *parts[1:]]
        if by.cut is not None:
            parts = [self._of["cut"](parts[0], by.cut), *parts[1:]]
        inner = self._inner(parts, by.activation) if by.bends is None else self._of["bend"](by.bends, *parts)
        return self._closed(by.down, inner, x, by)

    def attention(self, x: mx.array, by: AttentionParts, step: Step, cache: AttentionCache) -> mx.array:
        heads = by.heads
        read = x if by.norm is None else self._normed(by.norm, x)
        read = read if by.norm_scale == 1 else read * by.norm_scale
        parts = self.projections(by.opening, read)
        if heads.by_head:
            parts = list(mx.split(_by_heads(parts[0], 3 * heads.size), 3, axis=-1))
        elif len(parts) == 1 and not by.reads:
            inner, shared = heads.count * heads.size, heads.groups * heads.size
            parts = list(mx.split(parts[0], [inner, inner + shared], axis=-1))
        queries, gate = parts[0], None
        if heads.gated:
            both = mx.unflatten(queries, 2, (heads.count, -1))
            queries, gate = (part.flatten(2) for part in mx.split(both, 2, axis=-1))
        seen = self._seen(queries, parts[1:], by, step, cache)
        if gate is not None:
            seen = self._of["gated"]("sigmoid", gate, seen)
        if by.gate is not None:
            made = self._of["linear"](by.gate.by, read).astype(mx.float32)
            made = self._of[by.gate.activation](made).astype(seen.dtype)
            seen = (mx.unflatten(seen, 2, (made.shape[-1], -1)) * made[..., None]).flatten(2)
        return self._closed(by.close, seen, x, by)

    def _seen(
        self,
        queries: mx.array,
        kept: Sequence[mx.array],
        by: AttentionParts,
        step: Step,
        cache: AttentionCache,
    ) -> mx.array:
        """What heads see. kept: keys and values, or keys that are values, too; none where they are read."""
        heads, (query_norm, key_norm) = by.heads, by.head_norms or (None, None)
        rope = None if heads.normed_turned else heads.rope
        scoring = Scoring(heads.size, heads.scale, rope, heads.softcap, by.sinks)
        queries = self._placed(queries, query_norm, by, step, factors=True)
        if by.reads:
            return self._of["recall"](step, cache, queries, scoring)
        keys, values = kept[0], kept[-1]
        keys = self._placed(keys if by.key_scale == 1 else keys * by.key_scale, key_norm, by, step)
        if by.value_norm is not None:
            values = by.value_norm(_by_heads(values, heads.size))
        if by.value_scale != 1:
            values = values * by.value_scale
        return self._of["remember"](step, cache, queries, keys, values, scoring)

    def _placed(
        self, flat: mx.array, norm: Any, by: AttentionParts, step: Step, *, factors: bool = False
    ) -> mx.array:
        """Queries or keys as they are remembered or asked with, but for a turn that has no norm behind it."""
        heads = by.heads
        times = by.factors(step) if factors and by.factors is not None else None
        if heads.normed_together:
            flat = flat if norm is None else self._normed(norm, flat)
        if norm is None and times is None and not heads.normed_turned:
            return flat
        x = flat if heads.normed_together and times is None else _by_heads(flat, heads.size)
        if norm is not None and not heads.normed_together and not heads.normed_turned:
            x = self._normed(norm, x)
        if times is not None:
            x = x * times[:, None, :, None].astype(x.dtype)
        if heads.normed_turned:
            x = x if heads.rope is None else self._of["rotate"](heads.rope, x, step)
            x = x if norm is None else self._normed(norm, x)
        return x

    def _closed(
        self, module: Any, x: mx.array, to: mx.array, by: AttentionParts | FeedForwardParts
    ) -> mx.array:
        if by.share == 1 or by.after is not None:
            return self.closing(module, x, to, by.after)
        return to + self._of["linear"](module, x) * by.share

    def layers(
        self,
        layers: Sequence[Any],
        x: mx.array,
        step: Step,
        caches: Sequence[StepCache | tuple[StepCache, ...]],
        given: mx.array | None = None,
    ) -> mx.array:
        for place, (layer, cache) in enumerate(zip(layers, caches, strict=True)):
            if given is None:
                x = layer(x, step, cache)
            else:
                x = layer(x, step, cache, given[:, :, 0 if given.shape[2] == 1 else place])
        return x

    def experts(
        self, by: ExpertParts, x: mx.array, chosen: mx.array, weights: mx.array, together: int | None
    ) -> mx.array:
        def answer(rows: mx.array, asked: mx.array, ordered: bool) -> mx.array:
            parts = [self._of["gather"](stack, rows, asked, ordered) for stack in by.opening]
            inner = self._inner(parts, by.activation, by.clip)
            return self._of["gather"](by.down, inner, asked, ordered)

        answers = self._of["ask"](x, chosen, answer, together)
        return self._of["matmul"](weights.astype(x.dtype)[..., None, :], answers).squeeze(-2)

    def _inner(
        self, parts: Sequence[mx.array], activation: str, clip: tuple[float, float] | None = None
    ) -> mx.array:
        if clip is not None:
            return self._of["clipped_gate"](*parts, *clip)
        return self._of[activation](*parts) if len(parts) == 1 else self._of["gated"](activation, *parts)

    def _normed(self, norm: Any, x: mx.array) -> mx.array:
        weight = norm.get("weight")
        if weight is None or weight.ndim > 1:
            return norm(x)
        return self._of["layer_norm" if norm.centred else "rms_norm"](norm, x)


def _by_heads(flat: mx.array, size: int) -> mx.array:
    """[B, L, heads * D] -> [B, heads, L, D], which may be there already."""
    return flat if flat.ndim == 4 else mx.unflatten(flat, 2, (-1, size)).swapaxes(1, 2)
