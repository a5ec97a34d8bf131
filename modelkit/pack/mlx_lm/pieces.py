"""Tensors that are made of a package's: pieced together, computed from one, or zeros.

As in `mlx_folder.shard`, each has `outputs`, known from headers, and gives its bytes in order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod

import mlx.core as mx
import numpy as np

from modelkit.pack.planning.plan_types import Output
from modelkit.pack.writing.reader import Reader
from modelkit.source.tensor import TensorInfo
from runtime.records import dataclass

_COPY_BYTES = 8 << 20
FLOATS = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
_ZERO = bytes(_COPY_BYTES)


class CannotFix(Exception):
    """This package is not one that the fix can be made for."""


@dataclass(frozen=True, slots=True)
class Pieced:
    """Spans of other tensors' bytes, one after the other."""

    output: Output
    spans: tuple[tuple[TensorInfo, int, int], ...]
    """(tensor, first, last): bytes counted from its start."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (self.output,)

    def called(self, name: str) -> "Pieced":
        return replace(self, output=replace(self.output, name=name))

    def pieces(self, reader: Reader) -> Iterator[tuple[memoryview, ...]]:
        for tensor, first, last in self.spans:
            for start in range(tensor.start + first, tensor.start + last, _COPY_BYTES):
                stop = min(start + _COPY_BYTES, tensor.start + last)
                yield (memoryview(reader.read_range(tensor.path, start, stop)),)


@dataclass(frozen=True, slots=True)
class Computed:
    """Floats that are computed from a tensor's, each of its matrices apart."""

    output: Output
    tensor: TensorInfo
    compute: Callable[[mx.array], mx.array]
    """Of [rows, width], for vectors of [width]; what comes out is rounded to the output's type."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (self.output,)

    def called(self, name: str) -> "Computed":
        return replace(self, output=replace(self.output, name=name))

    def pieces(self, reader: Reader) -> Iterator[tuple[memoryview, ...]]:
        shape = self.tensor.shape[-2:]
        count = prod(self.tensor.shape[:-2])
        size = self.tensor.nbytes // max(count, 1)
        for matrix in range(count):
            start = self.tensor.start + matrix * size
            raw = np.frombuffer(reader.read_range(self.tensor.path, start, start + size), np.uint8)
            values = mx.array(raw).view(FLOATS[self.tensor.dtype]).reshape(shape)
            made = mx.contiguous(self.compute(values).astype(FLOATS[self.output.dtype]))
            yield (np.array(made.reshape(-1).view(mx.uint8)).data,)


@dataclass(frozen=True, slots=True)
class Zeros:
    """Of any type: zero is no bit in all of them."""

    output: Output

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (self.output,)

    def called(self, name: str) -> "Zeros":
        return Zeros(replace(self.output, name=name))

    def pieces(self, reader: Reader) -> Iterator[tuple[memoryview, ...]]:
        del reader
        for start in range(0, self.output.nbytes, _COPY_BYTES):
            yield (memoryview(_ZERO)[: min(_COPY_BYTES, self.output.nbytes - start)],)


def stacked(name: str, parts: Sequence[TensorInfo]) -> Pieced:
    """Tensors of one shape, as one with a new first axis."""
    one = parts[0]
    assert all((part.shape, part.dtype) == (one.shape, one.dtype) for part in parts), name
    output = Output(name, one.dtype, (len(parts), *one.shape))
    return Pieced(output, tuple((part, 0, part.nbytes) for part in parts))


def unstacked(names: Sequence[str], tensor: TensorInfo) -> list[Pieced]:
    """What lies along a tensor's first axis, each by itself. Raises CannotFix where it is not so many."""
    count, *shape = tensor.shape
    if count != len(names):
        raise CannotFix(tensor.name)
    size = tensor.nbytes // max(count, 1)
    return [
        Pieced(Output(name, tensor.dtype, tuple(shape)), ((tensor, place * size, (place + 1) * size),))
        for place, name in enumerate(names)
    ]


def rows(name: str, tensor: TensorInfo, chosen: Sequence[int], height: int | None = None) -> Pieced:
    """These rows of each of a tensor's matrices, [..., height, width]; a row's bytes stay as they are.

    height: of vectors, whose numbers are their rows, their length.
    """
    matrices = 1 if height is not None else prod(tensor.shape[:-2])
    tall = height if height is not None else tensor.shape[-2]
    row_bytes = tensor.nbytes // max(matrices * tall, 1)
    shape = (len(chosen),) if height is not None else (*tensor.shape[:-2], len(chosen), tensor.shape[-1])
    runs = _runs(chosen)
    spans = [
        (tensor, (matrix * tall + first) * row_bytes, (matrix * tall + last) * row_bytes)
        for matrix in range(matrices)
        for first, last in runs
    ]
    return Pieced(Output(name, tensor.dtype, shape), tuple(spans))


def joined(name: str, parts: Sequence[TensorInfo], first: int, last: int) -> Pieced:
    """Rows [first, last) of tensors one below the other. Raises CannotFix where widths differ."""
    one = parts[0]
    if any((part.shape[1:], part.dtype) != (one.shape[1:], one.dtype) for part in parts):
        raise CannotFix(name)
    row_bytes = one.nbytes // one.shape[0]
    spans: list[tuple[TensorInfo, int, int]] = []
    top = 0
    for part in parts:
        start, stop = max(first, top) - top, min(last, top + part.shape[0]) - top
        if start < stop:
            spans.append((part, start * row_bytes, stop * row_bytes))
        top += part.shape[0]
    if last > top:
        raise CannotFix(name)
    return Pieced(Output(name, one.dtype, (last - first, *one.shape[1:])), tuple(spans))


def _runs(chosen: Sequence[int]) -> list[tuple[int, int]]:
    """[first, last) of neighbours."""
    found: list[tuple[int, int]] = []
    for row in chosen:
        if found and found[-1][1] == row:
            found[-1] = (found[-1][0], row + 1)
        else:
            found.append((row, row + 1))
    return found
