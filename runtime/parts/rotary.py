"""How the heads of some layers are turned, as operations ask for it.

Dimensions: B rows, H heads, L tokens, D head size; the first R of the D dimensions turn, in R / 2 pairs.
"""

from typing import ClassVar, Protocol

import mlx.core as mx

from runtime.step import Step

Turns = tuple[mx.array, mx.array | None, tuple[int, ...]]
"""(radians per position, float32 [1 or B, 2, R / 2]: two numbers that add up to 48 bits of each; positions
int32 [B, L], or None where rows count on; from where they do, one number where all agree)
"""


class Rotary(Protocol):
    """How the heads of some layers are turned (`runtime.nn.positions.rope.Rope`)."""

    @property
    def factor(self) -> float:
        """Multiplies cosines and sines."""
        ...

    @property
    def traditional(self) -> bool:
        """Pairs are neighbours (2i, 2i + 1) in place of halves (i, i + R / 2)."""
        ...

    def angles(self, step: Step) -> mx.array:
        """float32 [R], [L, R] or [B, L, R]: positions times signed frequencies."""
        ...

    ahead: ClassVar[int]
    """By how many positions heads are turned further than their own."""

    def turns(self, step: Step) -> Turns:
        """What a table is made of where angles are worked out in double."""
        ...

    def fused(self, x: mx.array, step: Step) -> mx.array:
        """By MLX's kernel, in any float type, where positions are indices."""
        ...
