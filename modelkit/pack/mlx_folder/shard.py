"""A safetensors file whose GGUF blocks are MLX's affine form: codes, float32 scales, float32 biases.

Where every byte goes is known from the header, so a few rows are held at a time, whatever a matrix's size.
Invariant: the same file gives the same bytes, whichever pieces it is read in.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Protocol

import mlx.core as mx
import numpy as np

from modelkit.pack.planning.plan_types import Output
from modelkit.pack.writing.reader import Reader
from modelkit.pack.writing.write import header_bytes
from modelkit.source.inventory import WeightFile
from modelkit.source.tensor import TensorInfo
from runtime.blocks.forms import Form
from runtime.blocks.stored import affine_form, as_affine
from runtime.blocks.types import BlockType
from runtime.records import dataclass

# Numbers that are decoded together; the steps between take several times their memory.
_PIECE = 1 << 22
_COPY_BYTES = 8 << 20


class Piece(Protocol):
    """What a file is written of: a tensor, or several that are made together."""

    @property
    def outputs(self) -> tuple[Output, ...]: ...

    def called(self, name: str) -> "Piece":
        """The same under another name, which the first of its outputs gets."""
        ...

    def pieces(self, reader: Reader) -> Iterator[tuple[memoryview, ...]]:
        """A piece of each output at a time."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """A tensor whose bytes stay."""

    tensor: TensorInfo

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output(self.tensor.name, self.tensor.dtype, self.tensor.shape),)

    def called(self, name: str) -> "Plain":
        return Plain(replace(self.tensor, name=name))

    def pieces(self, reader: Reader) -> Iterator[tuple[memoryview, ...]]:
        for start in range(self.tensor.start, self.tensor.stop, _COPY_BYTES):
            stop = min(start + _COPY_BYTES, self.tensor.stop)
            yield (memoryview(reader.read_range(self.tensor.path, start, stop)),)


@dataclass(frozen=True, slots=True)
class Matrix:
    """One in GGUF's blocks, [..., rows, bytes of a row]."""

    tensor: TensorInfo
    kind: BlockType
    factor: TensorInfo | None
    """[1], or one for each of the matrices in a stack."""

    @property
    def form(self) -> Form:
        return affine_form(self.kind, factor=self.factor is not None)[0]

    @property
    def exact(self) -> bool:
        return affine_form(self.kind, factor=self.factor is not None)[1]

    @property
    def module(self) -> str:
        return self.tensor.name.removesuffix(".weight")

    @property
    def width(self) -> int:
        """In numbers."""
        return self.tensor.shape[-1] // self.kind.nbytes * self.kind.weights

    @property
    def outputs(self) -> tuple[Output, ...]:
        leading, form = self.tensor.shape[:-1], self.form
        groups = (*leading, self.width // form.group_size)
        return (
            Output(self.tensor.name, "U32", (*leading, self.width * form.bits // 32)),
            Output(f"{self.module}.scales", "F32", groups),
            Output(f"{self.module}.biases", "F32", groups),
        )

    @property
    def nbytes(self) -> int:
        return sum(output.nbytes for output in self.outputs)

    def called(self, name: str) -> "Matrix":
        return replace(self, tensor=replace(self.tensor, name=name))

    def pieces(self, reader: Reader) -> Iterator[tuple[memoryview, ...]]:
        *_, rows, row_bytes = self.tensor.shape
        factors = self._factors(reader)
        count = max(_PIECE // self.width, 1)
        for matrix in range(prod(self.tensor.shape[:-2])):
            factor = None if factors is None else factors[matrix % factors.size]
            for first in range(0, rows, count):
                start = self.tensor.start + (matrix * rows + first) * row_bytes
                stop = start + min(count, rows - first) * row_bytes
                raw = np.frombuffer(reader.read_range(self.tensor.path, start, stop), np.uint8)
                made = as_affine(mx.array(raw.reshape(-1, row_bytes)), self.kind, factor)
                parts = (made.codes, made.scales, made.biases)
                yield tuple(np.array(part).reshape(-1).view(np.uint8).data for part in parts)

    def _factors(self, reader: Reader) -> mx.array | None:
        if self.factor is None:
            return None
        raw = reader.read_range(self.factor.path, self.factor.start, self.factor.stop)
        dtype = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}[self.factor.dtype]
        return mx.array(np.frombuffer(raw, np.uint8)).view(dtype)


@dataclass(frozen=True, slots=True)
class Shard:
    """A file to write; what `export` calls a made one."""

    tensors: tuple[Piece, ...]
    """In the order of their bytes."""
    sources: tuple[WeightFile, ...]
    """The files that they, and factors, lie in."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        return tuple(output for tensor in self.tensors for output in tensor.outputs)

    @property
    def size_bytes(self) -> int:
        outputs = self.outputs
        return len(header_bytes(outputs)) + sum(output.nbytes for output in outputs)

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """(offset, bytes) of all of it. Raises SourceError for files that change meanwhile."""
        header = header_bytes(self.outputs)
        yield 0, memoryview(header)
        at = len(header)
        with Reader(self.sources) as reader:
            for tensor in self.tensors:
                places: list[int] = []
                for output in tensor.outputs:
                    places.append(at)
                    at += output.nbytes
                for parts in tensor.pieces(reader):
                    for number, part in enumerate(parts):
                        yield places[number], part
                        places[number] += len(part)
                assert places[-1] == at, tensor
            reader.check_unchanged()
