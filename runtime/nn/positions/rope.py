"""Rotary position embedding: a `RopeSpec` applied to heads, at the positions of a step.

What turns them, the table of operations says: MLX's fused kernel, or tables that all layers share. The kernel
can only count on from where a row begins, so positions that a step brings itself go by tables everywhere.
"""

from array import array
from collections.abc import Sequence
from typing import ClassVar

import mlx.core as mx

from runtime.cpu.turn import signed_frequencies
from runtime.nn.operations import ops
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.parts.rotary import Turns
from runtime.step import Step


class Rope:
    """Callable: rotate [B, heads, L, D] at the positions of a step, or `ahead` positions later."""

    ahead: ClassVar[int] = 0

    def __init__(self, spec: RopeSpec) -> None:
        self._spec = spec
        self._wavelengths = mx.array(spec.wavelengths, dtype=mx.float32)
        self._long = mx.array(spec.long_wavelengths or (), dtype=mx.float32)
        self._frequencies, self._long_frequencies = (
            signed_frequencies(wavelengths, traditional=spec.traditional)
            for wavelengths in (self._wavelengths, self._long)
        )
        # Now, since whoever computes with them may be another thread, which has not the streams of this one.
        mx.eval(self._frequencies, self._long_frequencies)
        self._exact, self._long_exact = (
            _in_two(wavelengths) for wavelengths in (spec.wavelengths, spec.long_wavelengths or ())
        )

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return ops.table.rotate(self, x, step)

    @property
    def factor(self) -> float:
        return self._spec.attention_factor

    @property
    def traditional(self) -> bool:
        return self._spec.traditional

    def angles(self, step: Step) -> mx.array:
        """float32 [R], [L, R] or [B, L, R]: positions times R signed frequencies."""
        if step.moved or len(set(step.starts)) > 1:
            positions = (step.positions + self.ahead).astype(mx.float32)[..., None]
        else:
            start = step.starts[0] + self.ahead
            positions = start if step.width == 1 else mx.arange(start, start + step.width)[:, None]
        return self._of_rows(step) * positions

    def _of_rows(self, step: Step) -> mx.array:
        """Signed frequencies [R], or [B, 1, R] where rows differ."""
        if self._spec.long_wavelengths is None:
            return self._frequencies
        long = self.are_long(step)
        if len(set(long)) == 1:
            return self._long_frequencies if long[0] else self._frequencies
        return mx.where(mx.array(long)[:, None, None], self._long_frequencies, self._frequencies)

    def turns(self, step: Step) -> Turns:
        """What a table is made of where angles are worked out in double."""
        frequencies = self._exact
        if self._spec.long_wavelengths is not None:
            long = self.are_long(step)
            of_rows = [self._long_exact if is_long else self._exact for is_long in long]
            frequencies = of_rows[0] if len(set(long)) == 1 else mx.concatenate(of_rows)
        if step.moved or (len(frequencies) > 1 and len(set(step.starts)) == 1):
            return frequencies, step.positions, ()
        return frequencies, None, step.starts if len(set(step.starts)) > 1 else step.starts[:1]

    def fused(self, x: mx.array, step: Step) -> mx.array:
        """The same by MLX's own kernel, in any float type, where positions are indices."""
        offset = step.offset + self.ahead
        if self._spec.long_wavelengths is None:
            return self._at(x, offset)
        long = self.are_long(step)
        if len(set(long)) == 1:
            return self._at(x, offset, long=long[0])
        which = mx.array(long)[:, None, None, None]
        return mx.where(which, self._at(x, offset, long=True), self._at(x, offset))

    @property
    def shifts(self) -> bool:
        """Can rotated keys be moved? Not where it depends on their sequence by how much they were turned."""
        return self._spec.long_wavelengths is None

    def shifted(self, keys: mx.array, by: int) -> mx.array:
        """Rotated keys [B, heads, L, D] as if each stood `by` positions later (earlier, where negative)."""
        assert self.shifts
        spec, apart = self._spec, keys.reshape(keys.shape[0], -1, 1, keys.shape[-1])
        # They carry the attention factor already, and all turn by the same angle: one position per "head".
        turned = mx.fast.rope(
            apart,
            spec.dims,
            traditional=spec.traditional,
            base=None,
            scale=1.0 if by >= 0 else -1.0,
            offset=abs(by),  # GPUs add it to an unsigned number
            freqs=self._wavelengths,
        )
        return turned.reshape(keys.shape)

    def are_long(self, step: Step) -> tuple[bool, ...]:
        """Which rows take the long factors: those that the step says (`Step.long`), or whose tokens, with
        those of this step, are more than `long_after`.

        Keys stay as they were written, so whoever reads a sequence in several steps says it for all of them.
        """
        if step.long is not None:
            return step.long
        stops = (start + count for start, count in zip(step.starts, step.counts, strict=True))
        return tuple(stop > self._spec.long_after for stop in stops)

    def _at(self, x: mx.array, offset: int | mx.array, *, long: bool = False) -> mx.array:
        """Column j of row b is at position offset[b] + j. long: by the long wavelengths."""
        spec = self._spec
        if spec.attention_factor != 1.0:
            x = _scale_rotated(x, spec)
        return mx.fast.rope(
            x,
            spec.dims,
            traditional=spec.traditional,
            base=None,
            scale=1.0,
            offset=offset,
            freqs=self._long if long else self._wavelengths,
        )


def _in_two(wavelengths: Sequence[float]) -> mx.array:
    """float32 [1, 2, R / 2]: frequencies, as a float32 each and what that leaves of them."""
    exact = [1 / wavelength for wavelength in wavelengths]
    first = array("f", exact)
    return mx.array([[list(first), [whole - part for whole, part in zip(exact, first, strict=True)]]])


def _scale_rotated(x: mx.array, spec: RopeSpec) -> mx.array:
    # cos and sin scaled by f is the same as scaling the rotated part of the input.
    if spec.dims == x.shape[-1]:
        return x * spec.attention_factor
    rotated = x[..., : spec.dims] * spec.attention_factor
    return mx.concatenate([rotated, x[..., spec.dims :]], axis=-1)
