"""Rows of GGUF's tensors: repacked, passed on, or decoded. What is not a number is refused by place."""

from typing import TypeAlias

import mlx.core as mx
import numpy as np

from modelkit.errors import MalformedFile
from modelkit.pack.planning.slabs import Columns, Joined, Slab
from runtime.blocks.decode import decoded
from runtime.blocks.finite import all_finite, first_not_finite
from runtime.blocks.repack import NotFinite, repacked
from runtime.blocks.types import BLOCK_TYPES

Bytes: TypeAlias = memoryview | bytearray

_FLOATS = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
_DAMAGED = "The file is damaged, or was made from a model whose training diverged. Fetch it again."


def stored_blocks(how: str, raw: Bytes, slab: Slab) -> tuple[Bytes, ...]:
    """The slab's rows as they are to be stored: `repacked` as codes, scales and biases, or `kept`."""
    kind = BLOCK_TYPES.get(slab.tensor.dtype)
    if kind is None:  # a factor beside them
        check_floats(raw, slab)
        return (raw,)
    if how == "kept":
        _check(raw, slab)
        return (raw,)
    try:
        found = repacked(raw, kind)
    except NotFinite as fault:
        raise _not_finite(slab, fault.block) from fault
    parts = (found.codes, found.scales, found.biases)
    return tuple(part.reshape(-1).view(np.uint8).data for part in parts if part is not None)


def numbers_of(raw: Bytes, slab: Slab) -> mx.array:
    """The rows' numbers, [rows, width]: float32 where they are packed, else as stored."""
    rows = mx.array(np.frombuffer(raw, np.uint8).reshape(slab.rows, -1))
    kind = BLOCK_TYPES.get(slab.tensor.dtype)
    if kind is None:
        check_floats(raw, slab)
        return rows.view(_FLOATS[slab.tensor.dtype])
    _check(raw, slab)
    return decoded(rows, kind)


def changed(parts: list[mx.array], slab: Joined) -> mx.array:
    """The numbers of all parts as one tensor, changed: float32 [rows, width]."""
    flat = mx.concatenate([part.astype(mx.float32).reshape(-1) for part in parts])
    width = slab.shape[-1]
    if slab.change is None:
        return flat.reshape(-1, width)
    found = slab.change.apply(flat.reshape(slab.change.before(slab.shape)), mx)
    return mx.contiguous(found).reshape(-1, width)


def check_floats(raw: Bytes, slab: Slab | Columns) -> None:
    """Raise MalformedFile for plain floats that are NaN or infinite."""
    if slab.tensor.dtype in _FLOATS and not all_finite(raw, slab.tensor.dtype):
        raise MalformedFile(
            f"{slab.tensor.path.name}: tensor `{slab.tensor.name}` has numbers that are NaN or infinite",
            hint=_DAMAGED,
        )


def _check(raw: Bytes, slab: Slab) -> None:
    block = first_not_finite(raw, BLOCK_TYPES[slab.tensor.dtype])
    if block is not None:
        raise _not_finite(slab, block)


def _not_finite(slab: Slab, block: int) -> MalformedFile:
    """block: counted through the rows that the slab gives."""
    kind = BLOCK_TYPES[slab.tensor.dtype]
    row, place = divmod(block, slab.row_bytes // kind.nbytes)
    row = slab.start + row * slab.step
    return MalformedFile(
        f"{slab.tensor.path.name}: tensor `{slab.tensor.name}`, row {row}, block {place}: "
        f"its {kind.name.upper()} scale is NaN, infinite or too large",
        hint=_DAMAGED,
    )
