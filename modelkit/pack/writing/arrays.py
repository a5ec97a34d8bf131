"""Planned weights as arrays in memory: for running a file whose package would hold them in another form."""

from collections.abc import Iterator

import mlx.core as mx
import numpy as np

from modelkit.pack.part import Part
from modelkit.pack.planning.plan_types import Output, PlannedFile
from modelkit.pack.writing.reader import Reader
from modelkit.pack.writing.transform import release_memory, transform
from modelkit.pack.writing.write import header_of, write_file
from runtime.streams import reused_streams
from runtime.weights.files import DTYPES


def read_arrays(part: Part) -> dict[str, mx.array]:
    """The tensors that `create` would write, by name. Raises SourceError as it would."""
    found: dict[str, mx.array] = {}
    try:
        with Reader(part.source.inventory.weights) as reader, reused_streams() as take:
            for file in part.plan.files:
                collector = _Collector(file)
                write_file(file, collector, reader, transform, begins=take)
                found.update(collector.arrays())
            reader.check_unchanged()
    finally:
        release_memory()
    return found


class _Collector:
    """Takes the bytes of a file that is written, header first, and puts each tensor's apart."""

    def __init__(self, file: PlannedFile) -> None:
        self._outputs = [output for tensor in file.tensors for output in tensor.outputs]
        self._skip = len(header_of(file))
        self._buffers = [np.empty(output.nbytes, np.uint8) for output in self._outputs]
        self._at = (0, 0)

    def write(self, data: "bytes | bytearray | memoryview", /) -> None:
        content = np.frombuffer(data, np.uint8)
        skipped = min(self._skip, len(content))
        self._skip -= skipped
        content = content[skipped:]
        place, filled = self._at
        while len(content):
            buffer = self._buffers[place]
            count = min(len(buffer) - filled, len(content))
            buffer[filled : filled + count] = content[:count]
            content, filled = content[count:], filled + count
            if filled == len(buffer):
                place, filled = place + 1, 0
        self._at = (place, filled)

    def arrays(self) -> Iterator[tuple[str, mx.array]]:
        """Each buffer is given up as its array is made."""
        while self._outputs:
            output: Output = self._outputs.pop()
            raw = mx.array(self._buffers.pop())
            yield output.name, raw.view(DTYPES[output.dtype]).reshape(output.shape)
