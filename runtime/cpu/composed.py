"""Sublayers put together from a column's own operations: what the table's fused operations mean, and what the
columns without kernels of their own compute.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import mlx.core as mx


def by_name(column: Any, others: Mapping[str, Any]) -> dict[str, Any]:
    """What a column computes, and under other names what these do."""
    return {**others, **{field.name: getattr(column, field.name) for field in fields(column)}}


class Composed:
    """of: functions by their names in `runtime.nn.ops.Operations`, and activations by theirs."""

    def __init__(self, of: Mapping[str, Any]) -> None:
        self._of = of

    def table(self) -> dict[str, Any]:
        names = ("projections", "closing", "feed_forward")
        return {name: getattr(self, name) for name in names}

    def projections(self, modules: Sequence[Any], x: mx.array) -> Sequence[mx.array]:
        return [self._of["linear"](module, x) for module in modules]

    def closing(self, module: Any, x: mx.array, to: mx.array, after: Any) -> mx.array:
        y = self._of["linear"](module, x)
        return to + y if after is None else self._of["add_rms_norm"](after, y, to)

    def feed_forward(
        self,
        x: mx.array,
        norm: Any,
        opening: Sequence[Any],
        halves: bool,
        activation: str,
        down: Any,
        after: Any,
    ) -> mx.array:
        parts = self.projections(opening, x if norm is None else self._normed(norm, x))
        if halves:
            parts = mx.split(parts[0], 2, axis=-1)
        inner = self._of[activation](*parts) if len(parts) == 1 else self._of["gated"](activation, *parts)
        return self.closing(down, inner, x, after)

    def _normed(self, norm: Any, x: mx.array) -> mx.array:
        return self._of["layer_norm" if norm.centred else "rms_norm"](norm, x)
