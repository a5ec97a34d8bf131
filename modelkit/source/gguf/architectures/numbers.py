"""Floats of metadata as people wrote them.

Files hold float32, so 1e-6 comes back as 9.99999997e-07. The shortest decimal that is the same float32 is
what config.json had.
"""

import struct


def as_float32(number: float) -> float:
    """The nearest float32. Raises OverflowError where there is none."""
    return struct.unpack("<f", struct.pack("<f", number))[0]


def shortest(number: float) -> float:
    """The decimal with the fewest digits that is this float32 (or the number itself, if it is none)."""
    if number != number or number in (float("inf"), float("-inf")):
        return number
    try:
        if as_float32(number) != number:
            return number
    except OverflowError:
        return number
    for digits in range(1, 10):
        found = float(f"{number:.{digits}g}")
        if as_float32(found) == number:
            return found
    return number


class Longs(list[int]):
    """Whole numbers that llama.cpp reads with 64 bits each; those of other lists have 32."""
