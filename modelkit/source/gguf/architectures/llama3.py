"""Llama 3's rotation, which GGUF tells as a number for each pair: what its wavelength is multiplied by.

The numbers follow from four parameters. Short wavelengths stay, long ones are multiplied by `factor`, and
between two bounds the frequency that remains is a straight line over the pair's own: so the parameters can be
found from the numbers, up to one of them: three say where the line begins and ends, which two would. Where
published parameters make the same numbers, those are taken; else `low_freq_factor` is one that makes the
others round, if there is one.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from modelkit.source.gguf.architectures.numbers import as_float32

TRAINED = "original_max_position_embeddings"

_PUBLISHED = ((1.0, 4.0), (1.0, 1.0))  # low_freq_factor and high_freq_factor; the second are Llama 4 Scout's
_CONTEXTS = (8192, 4096, 2048, 16384, 32768)
_FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0)
_LOWS = (1.0, 2.0, 0.5, 1.5, 4.0, 3.0, 0.25, 0.75, 1.25, 2.5)


def llama3_factors(block: Mapping[str, Any], head_dim: int) -> tuple[float, ...]:
    """What each pair's wavelength is multiplied by, as float32. Source: transformers' llama3 rotation."""
    factor, low, high = (float(block[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    context = block[TRAINED]
    found: list[float] = []
    for wavelength in _wavelengths(float(block["rope_theta"]), head_dim):
        if wavelength < context / high or high == low == context / wavelength:
            found.append(1.0)
        elif wavelength > context / low:
            found.append(factor)
        else:
            smooth = as_float32(as_float32(as_float32(context / wavelength) - low) / (high - low))
            part = as_float32(as_float32(as_float32(1 - smooth) / factor) + smooth)
            found.append(as_float32(1 / part))
    return tuple(found)


def _wavelengths(base: float, head_dim: int) -> list[float]:
    """In tokens, the shortest first, in the steps that transformers rounds them in."""
    powers = [as_float32(base ** as_float32(2 * pair / head_dim)) for pair in range(head_dim // 2)]
    return [as_float32(as_float32(2 * math.pi) / as_float32(1.0 / power)) for power in powers]


def llama3_block(stored: Sequence[float], base: float, context: int) -> dict[str, Any] | None:
    """The parameters that the stored numbers were made of, found by making them again; None: there are none.

    base: the rotation's, above 0. context: the model's own, in tokens.
    """
    told = ({"rope_type": "llama3", **block} for block in _guesses(stored, base, context))
    for block in told:
        if close(llama3_factors({**block, "rope_theta": base}, 2 * len(stored)), stored):
            return block
    return None


def _guesses(stored: Sequence[float], base: float, context: int) -> Iterator[dict[str, Any]]:
    halves = {context >> shift for shift in range(9) if context >> shift >= 16}
    contexts = (*_CONTEXTS, *sorted(halves - set(_CONTEXTS)))
    for low, high in _PUBLISHED:
        for factor in sorted({max(stored), *_FACTORS}, reverse=True):
            yield from (_block(factor, low, high, one) for one in contexts)
    lengths = _wavelengths(base, 2 * len(stored))
    yield from _stepped(stored, lengths)
    yield from _sloped(stored, lengths)


def _block(factor: float, low: float, high: float, context: float) -> dict[str, Any]:
    return {"factor": factor, "low_freq_factor": low, "high_freq_factor": high, TRAINED: round(context)}


def _stepped(stored: Sequence[float], lengths: Sequence[float]) -> Iterator[dict[str, Any]]:
    """From the numbers of pairs that all stay, or are multiplied whole: what lies between has no pair."""
    kept = sum(number == 1.0 for number in stored)
    if 0 < kept < len(stored):
        yield _block(max(stored), 1.0, 1.0, math.sqrt(lengths[kept - 1] * lengths[kept]))


def _sloped(stored: Sequence[float], lengths: Sequence[float]) -> Iterator[dict[str, Any]]:
    """From the line between the bounds: share = slope / wavelength - start, where share is 0 for pairs that
    are multiplied whole and 1 for those that stay.
    """
    largest = max(stored)
    for factor, between in ((largest, (1.0, largest)), (None, (1.0, math.inf))):
        points = [
            (1 / length, 1 / number)
            for length, number in zip(lengths, stored, strict=True)
            if between[0] < number < between[1]
        ]
        if not points:
            continue
        (first, left), (last, right) = points[0], points[-1]
        if factor is not None and len(points) == 1:
            yield from _through(factor, 1 / first, (left - 1 / factor) / (1 - 1 / factor))
        if first == last or left <= right:
            continue
        slope = (left - right) / (first - last)
        start = slope * first - left
        # No pair is multiplied whole, so nothing tells by what one would be: as if the bounds were 1 and 4,
        # else by a little more than the pairs that there are.
        wholes = (
            (1 / factor,) if factor else ((1 / 3 - start) * 3 / 4, 1 / (2 * largest), 1 / (1.01 * largest))
        )
        for whole in wholes:
            if 0 < whole < 1 and start + whole > 0:
                yield from _bounded(whole, slope / (1 - whole), (start + whole) / (1 - whole))


def _bounded(whole: float, slope: float, start: float) -> Iterator[dict[str, Any]]:
    """From the line: the first bound is free, for it says with the context where the line begins."""
    context = slope / start
    yield from (_block(1 / whole, low, _rounded(low + low / start), low * context) for low in _LOWS)
    low = _CONTEXTS[0] / context
    yield _block(1 / whole, low, low + low / start, _CONTEXTS[0])


def _through(factor: float, length: float, share: float) -> Iterator[dict[str, Any]]:
    """From the only pair on the line: there are many that go through it and miss the others."""
    yield _block(factor, 1.0, 4.0, (3 * share + 1) * length)
    for doubled in range(16):
        context = math.ceil(length * (1 + 2**-6) ** (2 ** (doubled / 2)))
        yield _block(factor, 1.0, 1 + (context / length - 1) / share, context)


def _rounded(number: float) -> float:
    """Without the last digits, which a line through numbers of float32 does not have."""
    return float(f"{number:.5g}")


def close(found: Sequence[float], stored: Sequence[float], bound: float = 1e-5) -> bool:
    """The same up to the last bits of the float32 they were computed in."""
    return len(found) == len(stored) and all(
        abs(a - b) <= bound * abs(b) for a, b in zip(found, stored, strict=True)
    )
