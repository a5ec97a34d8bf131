"""Traces rows of a checkpoint's tensors into the network: which parameter, which row, scaled by how much.

An adapter changes a matrix by A and B of low rank. The rows of B follow those of the matrix, which a family's
`adapt` renames, cuts (fused gate and up, latent heads), stacks (experts), reorders (heads, interleaved
projections) and scales. Instead of repeating that, `adapt` itself is run: on arrays of one column whose
numbers say which row of which tensor they are, and what comes out is read. A, which follows the columns,
needs no trace: no `adapt` moves the columns of a matrix [out, in], or packed matrices could not pass.

Dimensions: E experts, R rows (outputs; ids of a table), C columns.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import mlx.core as mx
import numpy as np

from runtime.loading.shapes import (
    Form,
    Shape,
    by_numbers,
    in_form,
    is_stack,
    is_transposed,
    output_first,
    parameters,
    stack_layouts,
)
from runtime.loading.unused import adapted
from runtime.models.registry.described import Described
from runtime.records import dataclass

_EXPERT = re.compile(r"(.*\.experts)\.(\d{1,5})\.(.+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One parameter of the network that rows arrive in."""

    name: str
    shape: Shape
    """In the network, unpacked."""
    sources: tuple[str, ...]
    """The tensors that its rows come from, in order of their first row."""
    source: np.ndarray
    """int32, all dimensions but the last, of biases all: which of `sources`, -1 where a row is none of
    theirs."""
    row: np.ndarray
    """int64, likewise: its place among all rows of that tensor."""
    times: np.ndarray
    """float32, likewise: what the row is multiplied by."""
    plus: np.ndarray
    """float32, likewise: what is added then."""


@dataclass(frozen=True, slots=True)
class RowTrace:
    """Where the rows of some tensors arrive."""

    arrivals: tuple[Arrival, ...]
    lost: tuple[str, ...]
    """Tensors of which a row arrives nowhere, but for experts that do not compute."""


_PACKED = (".scales", ".biases", ".order")
"""Endings of what lies beside codes."""


def trace(
    described: Described,
    tensors: Mapping[str, Shape],
    stored: Mapping[str, Shape],
    form: Form = "published",
) -> RowTrace:
    """Follow tensors (output first, by their names in checkpoints, with `.weight`) into the network.

    stored: the base's own tensors, for what arrives only beside its fellows (queries, keys and values that
    are joined). WeightMismatch where a family refuses what it is given.
    """
    network = parameters(described)
    asked = _Asked(described, network, tensors, form)
    found = asked.among(in_form(network, form))
    rest = [name for name in tensors if name not in found.complete]
    if rest:
        beside = {name: shape for name, shape in stored.items() if not name.endswith(_PACKED)}
        more = asked.among(beside)
        found = found.with_others(more, rest)
    return RowTrace(tuple(found.arrivals), tuple(name for name in tensors if name not in found.complete))


def placed(
    described: Described, arrays: Mapping[str, mx.array], form: Form = "published"
) -> dict[str, mx.array]:
    """Whole tensors by their names in checkpoints -> parameters of the network, those alone that hold nothing
    else. Lazy.
    """
    network = parameters(described)
    given = {name: mx.zeros(shape) for name, shape in in_form(network, form).items()}
    shapes = {name: output_first(described, name, tuple(array.shape), form) for name, array in arrays.items()}
    names = trace(described, shapes, {}, form)
    own = {
        name: array.T if is_transposed(described, name, array.shape, form) else array
        for name, array in arrays.items()
    }
    whole = {arrival.name for arrival in names.arrivals if (arrival.source >= 0).all()}
    for name in whole:
        given.pop(name, None)
    outputs = adapted(described, {**given, **own})
    return {name: outputs[name] for name in whole}


@dataclass(slots=True)
class _Found:
    arrivals: list[Arrival]
    complete: set[str]

    def with_others(self, more: "_Found", names: Iterable[str]) -> "_Found":
        """This, and what `more` says of these tensors."""
        wanted = set(names) & more.complete
        others = [one for one in more.arrivals if wanted & set(one.sources)]
        taken = {one.name for one in others}
        kept = [one for one in self.arrivals if one.name not in taken]
        return _Found(kept + others, self.complete | wanted)


class _Asked:
    """The questions to one family about some tensors."""

    def __init__(
        self, described: Described, network: Mapping[str, Shape], tensors: Mapping[str, Shape], form: Form
    ) -> None:
        self._described = described
        self._network = network
        self._names = tuple(tensors)
        alone = {name: mx.zeros(_thin(name, shape)) for name, shape in tensors.items()}
        self._siblings = _siblings(alone, network)
        outputs = adapted(described, {**alone, **self._siblings})
        self._own = set(outputs)
        self._turned = {name for name in tensors if is_stack(name) and self._input_first(name, tensors)}
        self._shapes = {
            name: (*shape[:-2], shape[-1], shape[-2]) if name in self._turned else _thin(name, shape)
            for name, shape in tensors.items()
        }

    def among(self, context: Mapping[str, Shape]) -> _Found:
        """Where they arrive, beside these tensors, none of which is one of theirs."""
        beside = {
            name: mx.zeros(_thin(name, shape)) for name, shape in context.items() if name not in self._own
        }
        beside |= self._siblings
        given = {id(array) for array in beside.values()}
        source = self._run(beside, lambda place, shape: mx.full(shape, place + 1.0))
        reached = [name for name, array in source.items() if id(array) not in given]  # others passed by
        if not reached:
            return _Found([], set())
        fills = (lambda _, shape: mx.zeros(shape), lambda _, shape: mx.ones(shape), self._numbered)
        nothing, ones, rows = (self._run(beside, fill) for fill in fills)  # norms gain 1 on their way
        ones, source, rows = (
            {name: array[name] - nothing[name] for name in reached} for array in (ones, source, rows)
        )
        return self._read(ones, source, rows, nothing)

    def _run(self, beside: Mapping[str, mx.array], fill: Any) -> dict[str, mx.array]:
        own = {name: fill(place, self._shapes[name]) for place, name in enumerate(self._names)}
        return adapted(self._described, {**{n: a for n, a in beside.items() if n not in own}, **own})

    def _numbered(self, place: int, shape: Shape) -> mx.array:
        """Every number is that of its row, counted through all matrices."""
        name = self._names[place]
        turned = name in self._turned
        numbers = mx.arange(_rows(name, shape, turned=turned), dtype=mx.float32)
        if by_numbers(name, shape):
            return numbers.reshape(shape)
        numbers = numbers.reshape(*shape[:-2], shape[-1 if turned else -2])
        return mx.broadcast_to(numbers[..., None, :] if turned else numbers[..., None], shape)

    def _read(
        self,
        ones: Mapping[str, mx.array],
        source: Mapping[str, mx.array],
        rows: Mapping[str, mx.array],
        nothing: Mapping[str, mx.array],
    ) -> _Found:
        arrivals: list[Arrival] = []
        seen: dict[str, list[np.ndarray]] = {name: [] for name in self._names}
        for name in source:
            arrival = self._arrival(name, ones[name], source[name], rows[name], nothing[name])
            if arrival is not None:
                arrivals.append(arrival)
                for place, tensor in enumerate(arrival.sources):
                    seen[tensor].append(arrival.row[arrival.source == place])
        complete = {name for name in self._names if seen[name] and self._is_whole(name, seen[name])}
        return _Found(arrivals, complete)

    def _is_whole(self, name: str, seen: list[np.ndarray]) -> bool:
        """Has every row arrived? Of a stack, every row of the first experts: a family leaves others out that
        do not compute.
        """
        shape, found = self._shapes[name], np.unique(np.concatenate(seen))
        rows = _rows(name, shape, turned=name in self._turned)
        if is_stack(name) and len(shape) == 3:
            each = rows // shape[0]
            rows = (int(found[-1]) // each + 1) * each
        return found.size == rows

    def _arrival(
        self, name: str, ones: mx.array, source: mx.array, rows: mx.array, nothing: mx.array
    ) -> Arrival | None:
        wanted = self._network.get(name)
        if wanted is None or ones.ndim != len(wanted) or not _fits(tuple(ones.shape), wanted):
            return None
        one = by_numbers(name, wanted)
        first = [array if one else array[..., 0] for array in (ones, source, rows, nothing)]
        times, number, row, plus = (np.array(array.astype(mx.float32)) for array in first)
        if not number.any():
            return None
        if not one and ones.shape[-1] > 1 and not mx.array_equal(rows[..., 0], rows[..., -1]).item():
            return None  # its columns moved
        theirs = number != 0
        times = np.where(theirs, times, 1)
        which = np.rint(number / times).astype(np.int64) - 1
        row = np.rint(row / times).astype(np.int64)
        order = list(dict.fromkeys(which[theirs].tolist()))
        place = np.full(len(self._names) + 1, -1, np.int32)
        place[order] = range(len(order))
        row = np.where(theirs, row, -1)
        return Arrival(name, wanted, tuple(self._names[i] for i in order), place[which], row, times, plus)

    def _input_first(self, name: str, tensors: Mapping[str, Shape]) -> bool:
        """Does the family expect this stack [E, in, out]?"""
        return stack_layouts(self._described, name, tensors[name])[:1] == (True,)


def _rows(name: str, shape: Shape, *, turned: bool) -> int:
    """Of all its matrices together."""
    return math.prod(shape) // (1 if by_numbers(name, shape) else shape[-2 if turned else -1])


def _thin(name: str, shape: Shape) -> Shape:
    """One column of each matrix; whole what may be turned over, and what has no rows."""
    if len(shape) < 2 or not name.endswith(".weight") or "conv" in name:
        return shape
    return (*shape[:-1], 1)


def _fits(got: Shape, wanted: Shape) -> bool:
    if len(wanted) < 2:
        return got == wanted
    return got[:-1] == wanted[:-1] and got[-1] in (1, wanted[-1])


def _siblings(alone: Mapping[str, mx.array], network: Mapping[str, Shape]) -> dict[str, mx.array]:
    """Experts that an adapter leaves out, without which a stack is not whole."""
    counts = {shape[0] for name, shape in network.items() if len(shape) > 2 and "conv" not in name}
    found: dict[str, mx.array] = {}
    for name, array in alone.items():
        expert = _EXPERT.fullmatch(name)
        for index in range(max(counts, default=0)) if expert else ():
            other = f"{expert[1]}.{index}.{expert[3]}" if expert else ""
            if other not in alone and other not in found:
                found[other] = mx.zeros(array.shape)
    return found
