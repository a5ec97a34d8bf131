"""Numbers that are none, in weights that stay as they are: looked at while the file's bytes pass.

Every answer of a model with a NaN among its weights is lost, so no package is made of one. What is converted
is looked at where it is read (`transform`), and what is copied beside its hashing.
Infinities may stand in a bias or a mask; in a matrix they are as bad as NaN, which infinity times zero is.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from modelkit.errors import MalformedFile
from modelkit.source.tensor import TensorInfo
from runtime.blocks.finite import all_finite, any_nan
from runtime.quoting import shown

if TYPE_CHECKING:
    import numpy as np

DAMAGED = "The checkpoint is damaged, or was saved by a training that diverged. Fetch it again."
_SIZES = {"F32": 4, "F16": 2, "BF16": 2}
_MATRICES = (".weight", ".scales", ".biases", "_proj")
"""How names of matrices end, those of experts in one stack as well."""


class Passing:
    """Of one file: `take` its pieces, in order, from its first byte on. tensors: all that it holds, in the
    order of their bytes.
    """

    def __init__(self, tensors: Iterable[TensorInfo]) -> None:
        self._floats = [one for one in tensors if one.dtype in _SIZES]
        self._next, self._at = 0, 0
        self._begun = b""  # of a number that two pieces share

    def take(self, piece: memoryview) -> None:
        """Raises MalformedFile for a NaN, with its tensor's name."""
        start, self._at = self._at, self._at + len(piece)
        while self._next < len(self._floats) and (tensor := self._floats[self._next]).start < self._at:
            self._look(tensor, piece[max(tensor.start - start, 0) : tensor.stop - start])
            if tensor.stop > self._at:
                return
            self._next += 1

    def _look(self, tensor: TensorInfo, part: memoryview) -> None:
        size = _SIZES[tensor.dtype]
        if self._begun:
            missing = size - len(self._begun)
            self._begun, part = self._begun + bytes(part[:missing]), part[missing:]
            if len(self._begun) < size:
                return
            _check(tensor, self._begun)
        whole = len(part) - len(part) % size
        _check(tensor, part[:whole])
        self._begun = bytes(part[whole:])


def _check(tensor: TensorInfo, raw: memoryview | bytes) -> None:
    if fault := fault_of(raw, tensor.dtype, tensor.name, tensor.shape):
        raise MalformedFile(
            f"{tensor.path.name}: tensor `{shown(tensor.name)}` has numbers that are {fault}", hint=DAMAGED
        )


def fault_of(
    raw: "memoryview | bytes | bytearray | np.ndarray", dtype: str, name: str, shape: Sequence[int]
) -> str | None:
    """What some of these floats are that no number of that tensor may be, if any is."""
    if all_finite(raw, dtype):
        return None
    if any_nan(raw, dtype):
        return "NaN"
    return "infinite" if len(shape) > 1 and name.endswith(_MATRICES) else None
