"""Rotation of heads by the kernels: one table of cosines and sines a step, for all layers that turn alike.

Angles are worked out in double. What MLX's own rotation and the tables of `runtime.cpu.turn` work out in
float32 is off by 3e-8 of an angle, which at position 1,000,000 is 0.03 radians.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from runtime.parts.rotary import Rotary
from runtime.step import Step


def cosines(kernels: Any, rope: Rotary, step: Step) -> mx.array:
    """float32 [B or 1, L, R]: R / 2 cosines, then as many sines, of the step's positions; made once."""

    def make() -> mx.array:
        frequencies, positions, starts = rope.turns(step)
        return kernels.rope_table(frequencies, positions, starts, step.width, rope.ahead, rope.factor)

    return step.memo((rope, "cosines"), make)


def rotating(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    node = kernels.rope_turn

    def rotate(rope: Rotary, x: mx.array, step: Step) -> mx.array:
        if x.dtype != mx.float32:
            return otherwise(rope, x, step)
        return node(x, cosines(kernels, rope, step), rope.traditional)

    return rotate
