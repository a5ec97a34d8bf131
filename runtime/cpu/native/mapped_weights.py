"""Weights where they lie: arrays over mapped files, and arrays as kernels read them.

A mapped file costs nothing until something is computed with it, and all processes that run one model share
the pages of its files. It must not change meanwhile: a file that becomes shorter ends every process that has
mapped it and reads on (SIGBUS). So only files whose content never changes may be mapped, such as the store's
blobs; whoever asks for it answers for that.

Mapped arrays live as long as anything holds them; with the last one the file is unmapped.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from runtime.cpu.native import kernels
from runtime.records import dataclass
from runtime.weights.files import DTYPES, is_utf8

_LENGTH = 8
"""Bytes in front of a header, which say how long it is."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A safetensors file."""

    arrays: dict[str, mx.array]
    """Tensors that are used where they lie."""
    others: bool
    """Has it more of them?"""


def mapped(path: Path, wanted: Callable[[str], bool]) -> Mapped:
    """The tensors of a safetensors file that are `wanted` and can be used where they lie; none where there
    are no kernels. The file's header was validated by the caller.
    """
    if kernels is None or not is_utf8(path):
        return Mapped({}, others=True)
    header, data = header_of(path)
    try:
        whole = kernels.File(str(path))
    except ValueError:  # a file system that maps nothing, or too many maps: it can be read all the same
        return Mapped({}, others=True)
    arrays: dict[str, mx.array] = {}
    for name, tensor in header.items():
        shape, dtype = tensor["shape"], DTYPES[tensor["dtype"]]
        start = data + tensor["data_offsets"][0]
        usable = start % dtype.size == 0 and math.prod(shape)
        if usable and wanted(name):
            arrays[name] = whole.at(start, shape, dtype)
    return Mapped(arrays, others=len(arrays) < len(header))


def header_of(path: Path) -> tuple[dict[str, Any], int]:
    """What a safetensors file says of each tensor, and where in it their bytes begin."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header, _LENGTH + length


def dense(array: mx.array) -> mx.array:
    """The same, its rows one behind the other: what is seen through strides would be copied at every use."""
    if kernels is None:
        return mx.contiguous(array)
    mx.eval(array)
    return array if kernels.is_dense(array) else mx.contiguous(array)
