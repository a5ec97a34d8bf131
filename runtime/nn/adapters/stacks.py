"""All adapters of a network that are in memory, in one stack per module: what rows are gathered from.

Ranks are padded with zeros, which add nothing. One adapter alone is its own stack, without a copy; the parts
of several become views of their stack.

Dimensions: n adapters of a module, r the largest rank among them, E experts, H heads, V tokens of a table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

import mlx.core as mx

from runtime.nn.adapters.adapter import Adapter, Key, Part
from runtime.records import dataclass


@dataclass(slots=True, eq=False)
class Stack:
    """What adapters add behind one module; None where none of them adds such a thing."""

    parts: dict[Adapter, Part]
    """In order of their places."""
    down: mx.array | None
    """[n, in, r], a table's [n, V, r], experts' [n, E, in, r]"""
    up: mx.array | None
    """[n, r, out], experts' [n, E, r, out], by heads [n, H, r, out]"""
    factor: mx.array | None
    """[n, out], by heads [n, H, out]"""
    bias: mx.array | None
    """[n, out]"""
    replaces: bool
    """Has any part a whole weight, or rows of one? Those are not stacked."""

    places: tuple[int, ...]
    """Of each adapter in memory: which one it is here; -1: it adds nothing here."""
    made: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """What a column keeps of this."""

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        return tuple(self.parts)


class AdapterStacks:
    """Finds a module's stack."""

    def __init__(self, adapters: Iterable[Adapter] = ()) -> None:
        self.adapters = tuple(adapters)
        keys = dict.fromkeys(key for adapter in self.adapters for key in adapter.parts)
        self._stacks = {key: _stack(key, self.adapters) for key in keys}

    def get(self, module: object, head: bool = False) -> Stack | None:
        """head: as the head that a table is."""
        return self._stacks.get((id(module), head))

    def having(self, adapter: Adapter) -> "AdapterStacks":
        """With one more."""
        return self if adapter in self.adapters else AdapterStacks((*self.adapters, adapter))


def _stack(key: Key, adapters: Sequence[Adapter]) -> Stack:
    parts = {adapter: adapter.parts[key] for adapter in adapters if key in adapter.parts}
    its = list(parts.values())
    stack = Stack(
        parts,
        _together([part.down for part in its], axis=-1),
        _together([part.up for part in its], axis=-2),
        _together([part.factor for part in its]),
        _together([part.bias for part in its]),
        any(part.whole is not None or part.rows is not None for part in its),
        tuple(list(parts).index(adapter) if adapter in parts else -1 for adapter in adapters),
    )
    if len(its) > 1:
        _as_views(its, stack)
    return stack


def _together(arrays: Sequence[mx.array | None], axis: int | None = None) -> mx.array | None:
    """Stacked along a new first axis, zeros where there is none. axis: of the rank, padded to the largest."""
    known = [array for array in arrays if array is not None]
    if not known:
        return None
    if len(arrays) == 1:
        return known[0][None]
    shape = list(known[0].shape)
    if axis is not None:
        shape[axis] = max(array.shape[axis] for array in known)
    return mx.stack([_padded(array, shape, known[0].dtype) for array in arrays])


def _padded(array: mx.array | None, shape: list[int], dtype: mx.Dtype) -> mx.array:
    if array is None:
        return mx.zeros(shape, dtype)
    return mx.pad(array, [(0, wanted - size) for wanted, size in zip(shape, array.shape, strict=True)])


def _as_views(parts: Sequence[Part], stack: Stack) -> None:
    """Let the parts' own arrays go."""
    for i, part in enumerate(parts):
        part.down = None if part.down is None or stack.down is None else stack.down[i]
        part.up = None if part.up is None or stack.up is None else stack.up[i]
        part.factor = None if part.factor is None or stack.factor is None else stack.factor[i]
        part.bias = None if part.bias is None or stack.bias is None else stack.bias[i]
    mx.eval([array for part in parts for array in part.arrays()])
