"""Random blocks of every GGUF type whose scales are ordinary numbers."""

import numpy as np

from runtime.blocks.finite import HALVES
from runtime.blocks.types import BLOCK_TYPES, BlockType

PACKED = [kind for kind in BLOCK_TYPES.values() if kind.packed]


def random_rows(kind: BlockType, rows: int, width: int, seed: int = 0, size: float = 0.01) -> np.ndarray:
    """uint8 [rows, bytes of a row]; scales are about `size`, half of them negative."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (rows * width // kind.weights, kind.nbytes), dtype=np.uint8)
    scales = (rng.standard_normal((len(blocks), 2)) * size).astype(np.float16)
    for number, at in enumerate(HALVES.get(kind.name, ())):
        blocks[:, at : at + 2] = scales[:, number : number + 1].view(np.uint8)
    if kind.name == "iq1_m":
        bits = scales[:, 0].view(np.uint16)
        for place in range(4):
            nibble = (bits >> 4 * place & 15).astype(np.uint8)
            blocks[:, 49 + 2 * place] = blocks[:, 49 + 2 * place] & 15 | nibble << 4
    if kind.name == "mxfp4":
        blocks[:, 0] = rng.integers(110, 130, len(blocks))
    if kind.name == "nvfp4":
        blocks[:, :4] = rng.integers(0, 0x7F, (len(blocks), 4))
    return blocks.reshape(rows, -1)
