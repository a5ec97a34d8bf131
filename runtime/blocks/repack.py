"""Blocks whose numbers MLX holds with 16-bit scales, turned into its layout: bits only move.

MLX has the codes of a row as one stream of bits, lowest first, and scales and biases beside it; ggml has the
two halves of a block in the low and high halves of its bytes. numpy, because this is done while a file is
copied and has to keep up with it: as many codes as a word has room for are moved together.
"""

from functools import cache, partial
from typing import Any

import numpy as np

from runtime.blocks.bits import low_bits
from runtime.blocks.forms import REPACKED
from runtime.blocks.types import BlockType
from runtime.records import dataclass

_CHUNK = 1 << 13  # blocks: what is worked on stays in a core's cache
_LOW_HALVES = 0x0F0F0F0F0F0F0F0F
_NO_SIGN, _INFINITE = np.uint16(0x7FFF), 0x7C00  # of a float16


class NotFinite(ValueError):
    """A block's scale is NaN, infinite, or too large for the form; `block` counts from the first given."""

    def __init__(self, block: int) -> None:
        super().__init__(f"block {block}")
        self.block = block


@dataclass(frozen=True, slots=True)
class Repacked:
    """Rows in MLX's layout; of its arrays the bytes are what is stored."""

    codes: np.ndarray
    """uint8."""
    scales: np.ndarray
    """float16, or uint8 for 4-bit floats."""
    biases: np.ndarray | None
    """float16; None for 4-bit floats."""


def repacked(raw: "bytes | bytearray | memoryview", kind: BlockType) -> Repacked:
    """Whole blocks of a type in `REPACKED`, in MLX's layout. Raises NotFinite."""
    form = REPACKED[kind.name]
    blocks = np.frombuffer(raw, np.uint8).reshape(-1, kind.nbytes)
    groups = kind.weights // form.group_size
    codes = np.empty((len(blocks), kind.weights * form.bits // 8), np.uint8)
    for start in range(0, len(blocks), _CHUNK):
        stop = start + _CHUNK
        codes[start:stop] = _CODES[kind.name](blocks[start:stop])
    if form.scales == "U8":
        return Repacked(codes, _bytes_of_scales(blocks, kind), None)
    scales, biases = _SCALES[kind.name](blocks)
    _check(scales, biases)
    if groups > 1:
        scales, biases = np.repeat(scales, groups), np.repeat(biases, groups)
    return Repacked(codes, scales, biases)


def _check(*parts: np.ndarray) -> None:
    """By the bits, which is several times faster than asking numpy for floats."""
    for part in parts:
        sizes = part.view(np.uint16) & _NO_SIGN
        if sizes.size and sizes.max() >= _INFINITE:
            raise NotFinite(int(np.argmax(sizes >= _INFINITE)))


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    return _words(blocks, at, "<u2").view("<f2")


def _words(blocks: np.ndarray, at: int, kind: str) -> np.ndarray:
    """One integer of each block. A field of a record is copied far faster than a slice of bytes is."""
    size = np.dtype(kind).itemsize
    record = np.dtype({"names": ["x"], "formats": [kind], "offsets": [at], "itemsize": blocks.shape[1]})
    assert at + size <= blocks.shape[1]
    return np.ascontiguousarray(blocks.reshape(-1).view(record)["x"])


def _stream(eights: np.ndarray, bits: int) -> np.ndarray:
    """Eight codes, a byte each, in each uint64 -> the same in the lowest 8 · bits bits."""
    for width in (8, 16, 32):
        used = bits * width // 8
        moved = eights >> np.uint64(width - used)
        if used > width // 2:  # the upper of two would lie over where it came from
            moved &= np.uint64(low_bits(used, 2 * width) << used)
            eights = eights & np.uint64(low_bits(used, 2 * width))
            eights |= moved
        else:
            moved |= eights
            moved &= np.uint64(low_bits(2 * used, 2 * width))
            eights = moved
    return eights


def _low_and_high(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """uint16, two bytes of two 4-bit codes each -> the low codes and the high ones, a byte of two each."""
    halves, four = np.uint16(_LOW_HALVES & 0xFFFF), np.uint16(4)
    low, high = words & halves, words >> four
    high &= halves
    for codes in (low, high):
        codes |= codes >> four
    return low.astype(np.uint8), high.astype(np.uint8)


def _halved(blocks: np.ndarray, at: int) -> np.ndarray:
    """4-bit codes of 32 numbers in 16 bytes: the first half of them is low, the second high."""
    out = np.empty((len(blocks), 2), np.uint64)
    for place, codes in enumerate(_low_and_high(_words(blocks, at, "V16").view("<u2"))):
        out[:, place] = codes.view(np.uint64)
    return out.view(np.uint8)


def _five(blocks: np.ndarray, high: int, at: int) -> np.ndarray:
    """5-bit codes: the low four as in `_halved`, the fifth bits together in one word at byte `high`."""
    fifths = _words(blocks, high, "<u4")
    eights: list[np.ndarray] = [fifths] * 4
    for part in range(2):
        both = _words(blocks, at + 8 * part, "<u8")
        for place, halves in ((part, both), (2 + part, both >> np.uint64(4))):
            top = _spread_byte(fifths >> np.uint32(8 * place)) << np.uint64(4)
            eights[place] = _stream(halves & np.uint64(_LOW_HALVES) | top, 5)
    out = np.empty((len(blocks), 5), np.uint32)
    first, second, third, fourth = eights  # 40 bits each
    out[:, 0] = first
    out[:, 1] = first >> np.uint64(32) | second << np.uint64(8)
    out[:, 2] = second >> np.uint64(24) | third << np.uint64(16)
    out[:, 3] = third >> np.uint64(16) | fourth << np.uint64(24)
    out[:, 4] = fourth >> np.uint64(8)
    return out.view(np.uint8)


def _spread_byte(word: np.ndarray) -> np.ndarray:
    """The lowest 8 bits of each word, one in each byte of a uint64."""
    copies = (word & np.uint32(0xFF)).astype(np.uint64) * np.uint64(0x0101010101010101)
    single = copies & np.uint64(0x8040201008040201)
    return (single + np.uint64(0x00406070787C7E7F)) >> np.uint64(7) & np.uint64(0x0101010101010101)


def _eight(blocks: np.ndarray) -> np.ndarray:
    return blocks[:, 2:] ^ np.uint8(128)


def _as_it_is(blocks: np.ndarray) -> np.ndarray:
    return blocks[:, 2:]


def _two_planes(blocks: np.ndarray) -> np.ndarray:
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    return _twos((blocks[:, :64].reshape(-1, 2, 1, 32) >> shifts) & np.uint8(3), len(blocks))


def _ternary(blocks: np.ndarray) -> np.ndarray:
    powers = np.array([1, 3, 9, 27, 81], np.uint8)
    parts: list[np.ndarray] = []
    for start, stop, count in ((0, 32, 5), (32, 48, 5), (48, 52, 4)):
        turned = blocks[:, None, start:stop] * powers[:count, None]  # modulo 256, as in ggml
        parts.append((turned.astype(np.uint16) * 3 >> 8).astype(np.uint8).reshape(len(blocks), -1))
    return _twos(np.concatenate(parts, axis=1), len(blocks))


def _twos(codes: np.ndarray, count: int) -> np.ndarray:
    eights = np.ascontiguousarray(codes).reshape(-1).view(np.uint64)
    return _stream(eights, 2).astype(np.uint16).view(np.uint8).reshape(count, -1)


def _float4(blocks: np.ndarray) -> np.ndarray:
    """NVFP4: each 8 bytes are 16 numbers."""
    out = np.empty((len(blocks), 4, 2), np.uint32)
    for place, codes in enumerate(_low_and_high(_words(blocks, 4, "V32").view("<u2"))):
        out[:, :, place] = codes.view(np.uint32).reshape(-1, 4)
    return out.reshape(-1, 8).view(np.uint8)


def _bytes_of_scales(blocks: np.ndarray, kind: BlockType) -> np.ndarray:
    """MXFP4's exponent, of which 255 is not a number; NVFP4's floats, which MLX reads with a sign and has a
    NaN for 0x7F, where ggml has no sign and 0.
    """
    if kind.name == "mxfp4":
        scales = blocks[:, 0]
        bad = scales == 255
    else:
        scales = blocks[:, :4].reshape(-1)
        bad = scales == 255
        scales = np.where(scales & 0x7F == 0x7F, np.uint8(0), scales & np.uint8(0x7F))
    if bad.any():
        raise NotFinite(int(np.argmax(bad)) * len(blocks) // len(bad))
    return np.ascontiguousarray(scales)


def _around(zero: int, blocks: np.ndarray, at: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Codes lie around a zero: the bias is the scale times a power of two, which float16 holds exactly or
    not at all.
    """
    d = _half(blocks, at)
    return d, _times(d, -zero)


def _offset(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _half(blocks, 0), _half(blocks, 2)


def _signs(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = _half(blocks, 0)
    return _times(d, 2), -d


def _times(scales: np.ndarray, factor: int) -> np.ndarray:
    """Looked up among the products of all 65536, ten times faster than computed."""
    return np.take(_products(factor), scales.view(np.uint16))


@cache
def _products(factor: int) -> np.ndarray:
    """What float16 cannot hold becomes infinite."""
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        return (every.astype(np.float32) * np.float32(factor)).astype(np.float16)


_CODES: dict[str, Any] = {
    "q4_0": partial(_halved, at=2),
    "q4_1": partial(_halved, at=4),
    "q5_0": partial(_five, high=2, at=6),
    "q5_1": partial(_five, high=4, at=8),
    "q8_0": _eight,
    "q1_0": _as_it_is,
    "q2_0": _as_it_is,
    "tq1_0": _ternary,
    "tq2_0": _two_planes,
    "mxfp4": partial(_halved, at=1),
    "nvfp4": _float4,
}

_SCALES: dict[str, Any] = {
    "q4_0": partial(_around, 8),
    "q4_1": _offset,
    "q5_0": partial(_around, 16),
    "q5_1": _offset,
    "q8_0": partial(_around, 128),
    "q1_0": _signs,
    "q2_0": partial(_around, 1),
    "tq1_0": partial(_around, 1, at=52),
    "tq2_0": partial(_around, 1, at=64),
}
