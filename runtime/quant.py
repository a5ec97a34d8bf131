"""The table of weight formats. One row per way to store a matrix; everything else reads this table.

    q4           4-bit affine, groups of 64
    q4g32        the same in groups of 32
    mxfp4, bf16  what is not affine has groups of one size, or none

Formats with a `mode` are MLX's own quantized layouts: packed codes in `weight` (uint32), one scale per group
of `group_size` elements of a row in `scales`, and for affine formats an offset per group in `biases`.
Source: the quantization modes of `mlx.core.quantize`.
"""

from runtime.records import dataclass


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


GROUPS = (64, 32, 128)
"""Elements per scale that affine formats may have; the first is what a name without `g` means."""

_AFFINE: tuple[tuple[int, tuple[str, ...], str], ...] = (
    (1, (), "1-bit affine, for weights trained to two values per group"),
    (2, (), "2-bit affine, for experiments"),
    (3, (), "3-bit affine"),
    (4, ("int4",), "4-bit affine; sensitive matrices at 8 bits"),
    (5, (), "5-bit affine"),
    (6, (), "6-bit affine"),
    (8, ("int8",), "8-bit affine, close to lossless"),
)


def _affine(bits: int, aliases: tuple[str, ...], meaning: str) -> tuple[Format, ...]:
    """The row of a width, and one for each other size of groups."""
    first, *others = GROUPS
    return (
        Format(f"q{bits}", bits, "affine", first, 4, (*aliases, f"q{bits}g{first}"), meaning),
        *(
            Format(f"q{bits}g{group}", bits, "affine", group, 4, (), f"{bits}-bit affine, groups of {group}")
            for group in others
        ),
    )


FORMATS: tuple[Format, ...] = (
    *(row for width in _AFFINE for row in _affine(*width)),
    Format("mxfp4", 4, "mxfp4", 32, 1, help="4-bit microscaling float (OCP MX)"),
    Format("mxfp8", 8, "mxfp8", 32, 1, help="8-bit microscaling float (OCP MX)"),
    Format("nvfp4", 4, "nvfp4", 16, 1, help="4-bit NVIDIA float"),
    Format("bf16", 16, help="bfloat16"),
    Format("f16", 16, help="float16"),
    Format("f32", 32, help="float32"),
)

MAIN = tuple(row for row in FORMATS if row.mode != "affine" or row.group_size == GROUPS[0])
"""The formats without those that differ from one of these in the size of their groups alone."""

NAMES = " ".join(row.name for row in MAIN)
"""The names for messages, with `OTHER_GROUPS`."""

OTHER_GROUPS = "q4g32 and q4g128 are q4 in groups of 32 and 128, and so for each of the q formats"


def find_format(text: str) -> Format | None:
    """The row that a user's spelling names, or None. Case and outer blanks do not matter."""
    wanted = text.strip().lower()
    for row in FORMATS:
        if wanted == row.name or wanted in row.aliases:
            return row
    return None
