"""The form in which keys or values are kept: as floats, or packed by the affine formats of runtime.quant.

A form has one or more parts per token, all [B, H, L, width]: one for floats; codes, scales and biases for
affine formats. Everything else in this room copies, cuts and moves parts alike; only this file knows what
they mean.

Invariant: a token is encoded without its neighbours, so how a prompt is cut into steps changes nothing.
"""

import mlx.core as mx

from runtime.cache.layout import grouping
from runtime.errors import NotSupported
from runtime.quant import find_format
from runtime.quoting import quoted
from runtime.records import dataclass

FLOATS = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
Parts = tuple[mx.array, ...]


@dataclass(frozen=True, slots=True)
class Codec:
    """How one vector, a key or a value of one head and token, is kept."""

    size: int
    """Elements of the vector."""
    dtype: mx.Dtype
    """What it is computed in."""
    stored: mx.Dtype
    """What its elements are kept in; of a packed vector, its scales and biases."""
    bits: int = 0
    """Of each packed code; 0: not packed."""
    group_size: int = 0
    """Elements that share a scale and a bias; 0: not packed."""

    @classmethod
    def of(cls, name: str | None, size: int, dtype: mx.Dtype) -> "Codec":
        """name: a format of runtime.quant, None for `dtype`. NotSupported says which can be."""
        row = find_format(name) if name is not None else None
        if name is None:
            return cls(size, dtype, dtype)
        if row is not None and row.name in FLOATS:
            return cls(size, dtype, FLOATS[row.name])
        if row is None or row.mode != "affine":
            raise NotSupported(
                f"keys and values cannot be kept in {quoted(name)}: f32, f16, bf16, q8 and q4 can"
            )
        group_size = grouping(size)
        if group_size is None:
            raise NotSupported(f"keys and values of {size} elements cannot be kept in {row.name}: not in 32s")
        return cls(size, dtype, dtype, row.bits, group_size)

    @property
    def parts(self) -> tuple[tuple[int, mx.Dtype], ...]:
        """Width and dtype of each part."""
        if not self.bits:
            return ((self.size, self.stored),)
        groups = self.size // self.group_size
        return ((self.size * self.bits // 32, mx.uint32), (groups, self.stored), (groups, self.stored))

    def encode(self, x: mx.array) -> Parts:
        """[B, H, L, size] -> its parts."""
        if not self.bits:
            return (x.astype(self.stored),)
        return tuple(mx.quantize(x.astype(self.stored), self.group_size, self.bits))

    def decode(self, parts: Parts) -> mx.array:
        """Parts -> [B, H, L, size] in `dtype`."""
        if not self.bits:
            return parts[0].astype(self.dtype)
        codes, scales, biases = parts
        return mx.dequantize(codes, scales, biases, self.group_size, self.bits)
