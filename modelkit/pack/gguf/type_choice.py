"""Which GGUF type holds a matrix of MLX's exactly, and which comes nearest where none does.

Affine codes of up to four bits fit Q4_1, those of five Q5_1, whatever the group: a group's scale and offset
are repeated for each of its blocks of 32. Where the offsets put 0 in the middle of the codes, as in what
came out of a GGUF file, the smaller types without offsets hold it. Scales of all these are 16-bit floats;
what does not fit them is rounded: most often scales so small that it is off by 3e-8 at most. Codes of six
and eight bits with free offsets have no type: Q8_0 is the nearest. Pure; what was found in the scales comes
in as `Scales`.
"""

from dataclasses import replace

from modelkit.source.prequantized import Packing
from runtime.records import dataclass

_LARGEST_HALF = 65_504
_MIDDLE = {1: 0.5, 2: 1.0, 4: 8.0, 5: 16.0, 6: 32.0, 8: 128.0}
"""The code that stands for 0 in types without offsets, by bits."""


@dataclass(frozen=True, slots=True)
class Scales:
    """What the scales of a packed matrix are like."""

    half: bool
    """All of them, and the offsets, are 16-bit floats."""
    middle: bool
    """Every offset is -scale times the code in the middle."""
    largest: float
    """No number of the matrix, and no scale, is larger."""
    plain: bool = True
    """nvfp4: no scale has a sign, and none is 0x7F."""


@dataclass(frozen=True, slots=True)
class TypeChoice:
    """How a tensor is written."""

    type: str
    """GGUF's, in lower case."""
    how: str
    """`copied`, `converted` or `rounded`: the same bytes, the same numbers, the nearest numbers."""
    why: str = ""
    """In a few words, where it is rounded."""

    @property
    def exact(self) -> bool:
        return self.how != "rounded"


def middle_of(bits: int) -> float | None:
    """The code that stands for 0 in types without offsets."""
    return _MIDDLE.get(bits)


def choose_type(packing: Packing, width: int, scales: Scales) -> TypeChoice:
    """For rows of `width` numbers."""
    if packing.mode == "affine":
        return _affine(packing, width, scales)
    if packing.mode == "mxfp4":
        return TypeChoice("mxfp4", "converted")
    if packing.mode == "nvfp4" and width % 64 == 0 and scales.plain:
        return TypeChoice("nvfp4", "converted")
    return TypeChoice("bf16", "converted")  # at most six significant bits, with exponents that bfloat16 has


def _affine(packing: Packing, width: int, scales: Scales) -> TypeChoice:
    if not scales.largest < _LARGEST_HALF:
        return TypeChoice("bf16", "rounded", "its scales are larger than 16-bit floats")
    exact = (
        TypeChoice("", "converted")
        if scales.half
        else TypeChoice("", "rounded", "its scales become 16-bit floats")
    )
    bits, group = packing.bits, packing.group_size
    if scales.middle:
        small = {1: ("q1_0", 128), 2: ("q2_0", 64), 4: ("q4_0", 32), 5: ("q5_0", 32)}
        small |= {6: ("q8_0", 32), 8: ("q8_0", 32)}
        name, block = small.get(bits, ("", 1))
        if name and group % block == 0 and width % block == 0:
            return replace(exact, type=name)
    if bits <= 5:
        return replace(exact, type="q5_1" if bits == 5 else "q4_1")
    return TypeChoice("q8_0", "rounded", f"no GGUF type has {bits}-bit codes with offsets")
