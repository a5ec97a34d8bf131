"""The numbers of a tensor as the words that stand in its file, so that moving them changes none."""

import numpy as np

from modelkit.errors import MalformedFile
from modelkit.pack.writing.reader import Reader
from modelkit.source.adapters.value import Q8_0
from modelkit.source.tensor import TensorInfo
from runtime.quoting import shown
from runtime.records import dataclass

_WORD = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16, "I32": np.uint32}
_EXPONENT = {"F32": 0x7F800000, "F16": 0x7C00, "BF16": 0x7F80}


@dataclass(frozen=True, slots=True)
class Words:
    """A tensor in memory."""

    dtype: str
    """As safetensors names it."""
    array: np.ndarray
    """Unsigned words of its size, in its shape."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def floats(self) -> np.ndarray:
        """float32; exact."""
        if self.dtype == "BF16":
            return (self.array.astype(np.uint32) << 16).view(np.float32)
        return (
            np.ascontiguousarray(self.array)
            .view(np.float16 if self.dtype == "F16" else np.float32)
            .astype(np.float32)
        )

    def turned(self) -> "Words":
        """The last two axes swapped."""
        return Words(self.dtype, self.array.swapaxes(-1, -2))

    def tobytes(self) -> bytes:
        return np.ascontiguousarray(self.array).tobytes()


def of_floats(values: np.ndarray) -> Words:
    return Words("F32", np.ascontiguousarray(values, np.float32).view(np.uint32))


def read_words(reader: Reader, tensor: TensorInfo) -> Words:
    """The tensor's numbers. Raises MalformedFile for NaN and infinities."""
    raw = reader.read_range(tensor.path, tensor.start, tensor.stop)
    if tensor.dtype == Q8_0:
        return _of_blocks(raw, tensor)
    array = np.frombuffer(raw, _WORD[tensor.dtype]).reshape(tensor.shape)
    exponent = _EXPONENT[tensor.dtype]
    if ((array & exponent) == exponent).any():
        raise _not_finite(tensor)
    return Words(tensor.dtype, array)


def _of_blocks(raw: bytes | bytearray | memoryview, tensor: TensorInfo) -> Words:
    """Each has a scale and 32 numbers, whose products float32 holds exactly."""
    blocks = np.frombuffer(raw, [("scale", "<f2"), ("codes", "i1", 32)])
    scales = blocks["scale"].astype(np.float32)
    if not np.isfinite(scales).all():
        raise _not_finite(tensor)
    return of_floats((scales[:, None] * blocks["codes"]).reshape(tensor.shape))


def _not_finite(tensor: TensorInfo) -> MalformedFile:
    return MalformedFile(
        f"`{shown(tensor.name)}` has numbers that are NaN or infinite",
        hint="The adapter is damaged, or its training diverged. Take an earlier checkpoint of it.",
    )
