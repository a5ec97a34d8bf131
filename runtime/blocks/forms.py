"""In which form each type is kept in a package, and which of MLX's forms says the same.

Three ways:

    q4_0 ... tq2_0       one 16-bit scale per 32 to 256 numbers: MLX's affine codes with 16-bit scales
    mxfp4, nvfp4         MLX's own formats of these names (nvfp4 with a factor of its own stays as blocks)
    K-quants, i-quants   their blocks as they are; they become numbers, or MLX's form, when they are loaded
"""

from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """How MLX holds the numbers of a type."""

    bits: int
    """Of a code."""
    group_size: int
    """Numbers that share a scale."""
    mode: str
    """MLX's quantization mode."""
    scales: str
    """safetensors' name of the type that scales (and biases) need to be exact: F16, F32 or U8."""

    @property
    def bits_per_weight(self) -> float:
        scale_bits = {"F16": 32, "F32": 64, "U8": 8}[self.scales]
        return self.bits + scale_bits / self.group_size


def _affine(bits: int, group_size: int, scales: str = "F16") -> Form:
    return Form(bits, group_size, "affine", scales)


REPACKED: dict[str, Form] = {
    "q4_0": _affine(4, 32),
    "q4_1": _affine(4, 32),
    "q5_0": _affine(5, 32),
    "q5_1": _affine(5, 32),
    "q8_0": _affine(8, 32),
    "q1_0": _affine(1, 128),
    "q2_0": _affine(2, 64),
    "tq1_0": _affine(2, 128),
    "tq2_0": _affine(2, 128),
    "mxfp4": Form(4, 32, "mxfp4", "U8"),
    "nvfp4": Form(4, 16, "nvfp4", "U8"),
}
"""Types that are stored in MLX's layout."""

EXACT_IN_F32: dict[str, Form] = {
    "q4_k": _affine(4, 32, "F32"),
    "q5_k": _affine(5, 32, "F32"),
    "iq4_nl": _affine(8, 32, "F32"),
    "iq4_xs": _affine(8, 32, "F32"),
    "iq3_s": _affine(8, 32, "F32"),
    "iq3_xxs": _affine(8, 32, "F32"),
    "iq2_xxs": _affine(8, 32, "F32"),
    "iq1_s": _affine(2, 32, "F32"),
}
"""Types that are stored as blocks and have an exact twin in MLX."""

# q2_k q3_k q6_k iq1_m iq2_xs iq2_s have a scale for every 16 numbers: MLX has none such.
NEAREST = _affine(8, 32, "F32")
"""What the other types become where floats would take too much memory."""
