"""Numbers that are NaN or infinite: where a block's own scales lie, and how plain floats show them. Files
with such numbers are refused while they are read.
"""

import numpy as np

from runtime.blocks.types import BlockType

HALVES = {
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
    **dict.fromkeys(["iq1_s", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs"], (0,)),
    **dict.fromkeys(["q4_0", "q5_0", "q8_0", "q1_0", "q2_0"], (0,)),
    **dict.fromkeys(["q4_1", "q5_1"], (0, 2)),
    "tq1_0": (52,),
    "tq2_0": (64,),
}
"""Bytes at which the float16 numbers of a block begin."""
_INFINITE = 0x7C00
_FLOATS = {"F32": ("4", 0x7F800000), "F16": ("2", 0x7C00), "BF16": ("2", 0x7F80)}
"""Bytes of a number, and the bits of infinity."""


def all_finite(raw: "bytes | bytearray | memoryview | np.ndarray", dtype: str) -> bool:
    """Are these floats (F32, F16 or BF16) all numbers?

    Told by the bits, in two passes that move nothing: what is not finite is largest, among the positive ones
    as signed words and among the negative ones as unsigned words.
    """
    size, infinite = _FLOATS[dtype]
    signed, unsigned = (np.frombuffer(raw, f"<{sign}{size}") for sign in "iu")
    if not signed.size:
        return True
    return int(signed.max()) < infinite and int(unsigned.max()) < (1 << 8 * int(size) - 1) + infinite


def any_nan(raw: "bytes | bytearray | memoryview | np.ndarray", dtype: str) -> bool:
    """Is one of these floats no number at all? For what `all_finite` found: it takes memory of its own."""
    size, infinite = _FLOATS[dtype]
    words = np.frombuffer(raw, f"<u{size}")
    return bool((words & ((1 << 8 * int(size) - 1) - 1) > infinite).any())


def first_not_finite(raw: "bytes | bytearray | memoryview", kind: BlockType) -> int | None:
    """The first of these whole blocks with a scale that is not a finite number; None where all are."""
    blocks = np.frombuffer(raw, np.uint8).reshape(-1, kind.nbytes)
    bad = np.zeros(len(blocks), bool)
    for at in HALVES.get(kind.name, ()):
        words = np.ascontiguousarray(blocks[:, at : at + 2]).view("<u2").reshape(-1)
        bad |= words & _INFINITE == _INFINITE
    if kind.name == "iq1_m":
        # The 16 bits lie in the highest quarters of four words; the exponent is in the last two.
        exponent = (blocks[:, 53] >> 4 & 0xC).astype(np.uint8), blocks[:, 55] >> 4
        bad |= (exponent[1] & 7 == 7) & (exponent[0] == 0xC)
    if kind.name == "mxfp4":
        bad |= blocks[:, 0] == 255
    if kind.name == "nvfp4":
        bad |= (blocks[:, :4] == 255).any(axis=1)
    return int(np.argmax(bad)) if bad.any() else None
