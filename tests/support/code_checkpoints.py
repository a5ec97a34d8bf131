"""Checkpoints as GPTQ, AWQ and compressed-tensors write them, from random codes, and as floats.

Written number by number from the tools' own definitions, not from the code that reads them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from runtime.records import dataclass

Tensors = dict[str, np.ndarray]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class Codes:
    """A matrix, [outputs, inputs]."""

    codes: np.ndarray
    """Whole numbers from 0, [O, C]."""
    scales: np.ndarray
    """[O, G]."""
    zeros: np.ndarray
    """[O, G]."""
    group_of: np.ndarray
    """[C]."""
    bits: int

    def floats(self) -> np.ndarray:
        """float32 [O, C]."""
        zeros, scales = self.zeros[:, self.group_of], self.scales.astype(np.float32)[:, self.group_of]
        return ((self.codes.astype(np.int64) - zeros) * scales).astype(np.float32)


def random_codes(
    name: str,
    shape: tuple[int, int],
    bits: int,
    group: int | None,
    *,
    symmetric: bool = True,
    dtype: Any = np.float16,
    shuffled: bool = False,
) -> Codes:
    """group: None is a row."""
    outputs, inputs = shape
    random = np.random.default_rng(sum(name.encode()) + 31 * bits)
    size = group or inputs
    groups = inputs // size
    scales = (random.random((outputs, groups)) * 0.02 + 0.002).astype(np.float32)
    if dtype is np.uint16:  # bfloat16, as its upper half
        scales = (scales.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    else:
        scales = scales.astype(dtype)
    zeros = np.full((outputs, groups), 1 << (bits - 1))
    if not symmetric:
        zeros = random.integers(0, 1 << bits, (outputs, groups))
    group_of = np.arange(inputs) // size
    if shuffled:
        group_of = random.permutation(group_of)
    return Codes(random.integers(0, 1 << bits, shape), scales, zeros, group_of, bits)


def gptq(one: Codes, *, version: int = 1) -> Tensors:
    """X's leaves: codes of an output's inputs follow each other downwards, zeros of a group to the right."""
    zeros = one.zeros - (1 if version == 1 else 0)
    return {
        "qweight": _stream(one.codes.T, one.bits, axis=0),
        "qzeros": _stream(zeros.T, one.bits, axis=1),
        "scales": np.ascontiguousarray(one.scales.T),
        "g_idx": one.group_of.astype(np.int32),
    }


def awq(one: Codes) -> Tensors:
    return {
        "qweight": _eights(one.codes.T),
        "qzeros": _eights(one.zeros.T),
        "scales": np.ascontiguousarray(one.scales.T),
    }


def compressed(one: Codes, *, symmetric: bool, ordered: bool = True) -> Tensors:
    found = {
        "weight_packed": _stream(one.codes, one.bits, axis=1),
        "weight_scale": one.scales,
        "weight_shape": np.array(one.codes.shape, np.int64),
    }
    if not symmetric:
        found["weight_zero_point"] = _stream(one.zeros, one.bits, axis=0)
    if not ordered:
        found["weight_g_idx"] = one.group_of.astype(np.int32)
    return found


def compressed_bytes(one: Codes, *, symmetric: bool) -> Tensors:
    found = {"weight": (one.codes - 128).astype(np.int8), "weight_scale": one.scales}
    return found if symmetric else {**found, "weight_zero_point": (one.zeros - 128).astype(np.int8)}


def _stream(values: np.ndarray, bits: int, axis: int) -> np.ndarray:
    """int32: one number after the other along the axis, each with its lowest bit first."""
    rows = np.moveaxis(values, axis, -1)
    words = -(-rows.shape[-1] * bits // 32)
    found = np.zeros((*rows.shape[:-1], words), np.uint64)
    for place in range(rows.shape[-1]):
        word, bit = divmod(place * bits, 32)
        value = rows[..., place].astype(np.int64).astype(np.uint64) & np.uint64((1 << bits) - 1)
        found[..., word] |= (value << np.uint64(bit)) & np.uint64(0xFFFFFFFF)
        if bit + bits > 32:
            found[..., word + 1] |= value >> np.uint64(32 - bit)
    whole = found.astype(np.uint32).view(np.int32)
    return np.ascontiguousarray(np.moveaxis(whole, -1, axis))


def _eights(values: np.ndarray) -> np.ndarray:
    """int32: eight columns to a word, in AWQ's order."""
    found = np.zeros((values.shape[0], values.shape[1] // 8), np.uint32)
    for word in range(found.shape[1]):
        for place, column in enumerate(AWQ_ORDER):
            found[:, word] |= values[:, 8 * word + column].astype(np.uint32) << np.uint32(4 * place)
    return found.view(np.int32)


def as_codes(
    state: Mapping[str, np.ndarray],
    chosen: Iterable[str],
    make: Callable[[str, tuple[int, int]], Codes],
    write: Callable[[Codes], Tensors],
) -> tuple[Tensors, Tensors]:
    """A checkpoint with these matrices as codes, and the one of plain floats with the same numbers."""
    coded, plain = dict(state), dict(state)
    for name in chosen:
        one = make(name, (state[name].shape[0], state[name].shape[1]))
        del coded[name]
        module = name.removesuffix(".weight")
        coded |= {f"{module}.{leaf}": array for leaf, array in write(one).items()}
        plain[name] = one.floats()
    return coded, plain
