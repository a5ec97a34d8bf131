"""The types of GGUF tensors that are read: how many numbers a block holds, and in how many bytes.

Source: `ggml_type` and the block structures of ggml (MIT), ggml-common.h.
"""

from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class BlockType:
    """One way in which ggml stores numbers. Plain numbers are blocks of one."""

    name: str
    """In lower case, as ggml spells it."""
    number: int
    """In files."""
    weights: int
    """Of a block; the last dimension of a tensor is a multiple of it."""
    nbytes: int
    """Of a block."""

    @property
    def packed(self) -> bool:
        """Are these quantized weights, not plain numbers?"""
        return self.weights > 1

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.nbytes / self.weights

    def row_bytes(self, width: int) -> int:
        """Of a row of `width` numbers, which must be whole blocks."""
        blocks, rest = divmod(width, self.weights)
        assert rest == 0, (self, width)
        return blocks * self.nbytes


_ROWS = (
    BlockType("f32", 0, 1, 4),
    BlockType("f16", 1, 1, 2),
    BlockType("q4_0", 2, 32, 18),
    BlockType("q4_1", 3, 32, 20),
    BlockType("q5_0", 6, 32, 22),
    BlockType("q5_1", 7, 32, 24),
    BlockType("q8_0", 8, 32, 34),
    BlockType("q2_k", 10, 256, 84),
    BlockType("q3_k", 11, 256, 110),
    BlockType("q4_k", 12, 256, 144),
    BlockType("q5_k", 13, 256, 176),
    BlockType("q6_k", 14, 256, 210),
    BlockType("iq2_xxs", 16, 256, 66),
    BlockType("iq2_xs", 17, 256, 74),
    BlockType("iq3_xxs", 18, 256, 98),
    BlockType("iq1_s", 19, 256, 50),
    BlockType("iq4_nl", 20, 32, 18),
    BlockType("iq3_s", 21, 256, 110),
    BlockType("iq2_s", 22, 256, 82),
    BlockType("iq4_xs", 23, 256, 136),
    BlockType("i8", 24, 1, 1),
    BlockType("i16", 25, 1, 2),
    BlockType("i32", 26, 1, 4),
    BlockType("i64", 27, 1, 8),
    BlockType("f64", 28, 1, 8),
    BlockType("iq1_m", 29, 256, 56),
    BlockType("bf16", 30, 1, 2),
    BlockType("tq1_0", 34, 256, 54),
    BlockType("tq2_0", 35, 256, 66),
    BlockType("mxfp4", 39, 32, 17),
    BlockType("nvfp4", 40, 64, 36),
    BlockType("q1_0", 41, 128, 18),
    BlockType("q2_0", 42, 64, 18),
)

BLOCK_TYPES = {row.name: row for row in _ROWS}
"""By name."""
