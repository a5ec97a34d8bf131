"""The table of weight formats. One row per way to store a matrix; everything else reads this table.

Formats with a `mode` are MLX's own quantized layouts: packed codes in `weight` (uint32), one scale per group
of `group_size` elements of a row in `scales`, and for affine formats an offset per group in `biases`.
Source: the quantization modes of `mlx.core.quantize`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """One way to store a matrix."""

    name: str
    """What users type and manifests say."""
    bits: int
    """Of a float or a code alone; `bits_per_weight` counts the scales too."""
    mode: str | None = None
    """MLX's quantization mode; None: plain floats."""
    group_size: int = 0
    """Elements of a row that share a scale; 0: not quantized."""
    scale_bytes: int = 0
    """Per group; affine: the scale and the bias together, in 16-bit floats."""
    aliases: tuple[str, ...] = ()
    """Other names that users may type."""
    help: str = ""
    """For people, in one phrase."""

    @property
    def quantized(self) -> bool:
        return self.mode is not None

    @property
    def bits_per_weight(self) -> float:
        return self.bits + (8 * self.scale_bytes / self.group_size if self.group_size else 0)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Can a tensor of this shape be stored so? Quantized rows must divide into whole groups."""
        return not self.quantized or (len(shape) >= 2 and shape[-1] > 0 and shape[-1] % self.group_size == 0)


FORMATS: tuple[Format, ...] = (
    Format("q2", 2, "affine", 64, 4, help="2-bit affine, for experiments"),
    Format("q3", 3, "affine", 64, 4, help="3-bit affine"),
    Format("q4", 4, "affine", 64, 4, ("int4",), "4-bit affine; sensitive matrices at 8 bits"),
    Format("q5", 5, "affine", 64, 4, help="5-bit affine"),
    Format("q6", 6, "affine", 64, 4, help="6-bit affine"),
    Format("q8", 8, "affine", 64, 4, ("int8",), "8-bit affine, close to lossless"),
    Format("mxfp4", 4, "mxfp4", 32, 1, help="4-bit microscaling float (OCP MX)"),
    Format("mxfp8", 8, "mxfp8", 32, 1, help="8-bit microscaling float (OCP MX)"),
    Format("nvfp4", 4, "nvfp4", 16, 1, help="4-bit NVIDIA float"),
    Format("bf16", 16, help="bfloat16"),
    Format("f16", 16, help="float16"),
    Format("f32", 32, help="float32"),
)


def find_format(text: str) -> Format | None:
    """The row that a user's spelling names, or None. Case and outer blanks do not matter."""
    wanted = text.strip().lower()
    for row in FORMATS:
        if wanted == row.name or wanted in row.aliases:
            return row
    return None
