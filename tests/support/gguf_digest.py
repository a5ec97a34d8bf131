"""What is kept of a tensor that llama.cpp's converter made."""

import zlib

import numpy as np

from tests.support.gguf_entries import INEXACT

SAMPLE = 64


def digest(name: str, array: np.ndarray) -> int | list[float]:
    """A checksum of float32 numbers; some of the numbers for those that come out of functions."""
    if name.startswith(INEXACT) or name.endswith(INEXACT):
        flat = array.reshape(-1)
        return [float(number) for number in flat[:: max(len(flat) // SAMPLE, 1)]]
    return zlib.crc32(np.ascontiguousarray(array, "<f4").tobytes())
