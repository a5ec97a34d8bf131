"""Which of MLX's packings holds the codes of another tool, and in what type its scales and biases are.

Group sizes beyond MLX's largest are written as several of that one, whose scales are the same.
"""

from modelkit.source.codes import CodeMatrix
from runtime.quant import FORMATS, Format

_FORMATS = {(row.bits, row.group_size): row for row in FORMATS if row.mode == "affine"}
_SMALL_FLOATS = {row.name: row for row in FORMATS if row.mode == row.name}
BLOCK_WEIGHTS = 64
"""Of NVFP4 in GGUF, which has a place for its factor."""
_GROUPS = (128, 64, 32)
_ROUNDED_BITS = 4  # a float16 bias of such codes is off by less than a hundredth of a step


def format_of(matrix: CodeMatrix) -> Format | None:
    """The packing of MLX's that holds the same codes; None where there is none. Of NVFP4 with a factor it is
    GGUF's blocks that do.
    """
    if matrix.is_small_floats:
        whole = not matrix.factored or matrix.shape[-1] % BLOCK_WEIGHTS == 0
        return _SMALL_FLOATS[matrix.layout] if whole else None
    size = matrix.group_size
    return next((_FORMATS.get((matrix.bits, one)) for one in _GROUPS if size % one == 0), None)


def bias_dtype(matrix: CodeMatrix) -> str:
    """The type of scales and biases: the scales' own; float32 where that would be far off."""
    own = matrix.dtype
    return own if matrix.symmetric or (own == "F16" and matrix.bits <= _ROUNDED_BITS) else "F32"


def is_exact(matrix: CodeMatrix) -> bool:
    """Does that type hold every bias?"""
    return matrix.symmetric or bias_dtype(matrix) == "F32"
