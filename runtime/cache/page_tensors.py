"""A page on disk: the arrays of its layers as tensors, and what such layers make of tensors again.

A file may be anybody's. So what comes back is held against the layout: types, shapes, and how many tokens a
layer of its kind has of a range.
"""

import struct
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from typing import Any, cast

import mlx.core as mx

from runtime.cache.codec import Codec
from runtime.cache.layout import (
    Chunked,
    Encoder,
    Full,
    LayerSpec,
    Pooled,
    Recurrent,
    Rotating,
    Shared,
    Stateless,
)
from runtime.cache.page_files import KEYS, BadPage, Buffer, Tensor, pack_ids
from runtime.cache.pages import Page
from runtime.cache.recurrent import DTYPES as STATE_DTYPES
from runtime.cache.remote import absent
from runtime.cache.snapshot import TOKEN_AXIS, Absent, Checkpoint, Snapshot, Span

DTYPES = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16, "U32": mx.uint32}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
BITS = mx.uint16
"""What bfloat16 is read as: numpy has no such type, and only the engine's thread can make it one."""
NOTHING = Tensor("F32", (0,), b"")

Shape = tuple[tuple[int | None, ...], mx.Dtype]
"""Of one array of a snapshot; None is the axis of tokens."""


class PageTensors:
    """Of layers laid out as `layout`, whose activations are `dtype`; `kept_format` as in KVRows.

    elsewhere: layers of other machines, of which a page has the shapes alone (`runtime.cache.remote`).
    """

    def __init__(
        self,
        layout: Sequence[LayerSpec],
        dtype: mx.Dtype,
        kept_format: str | None,
        elsewhere: Collection[int],
    ) -> None:
        self._layout, self._elsewhere = tuple(layout), frozenset(elsewhere)
        self._shapes = [_shapes(spec, dtype, kept_format) for spec in layout]

    def write(self, page: Page, keys: Sequence[Hashable]) -> dict[str, Tensor]:
        """Tensors `layer.part`, the page's keys first, where a reader of headers finds them soon."""
        layers = {
            f"{layer}.{part}": tensor
            for layer, snapshot in enumerate(page)
            if snapshot is not None
            for part, tensor in enumerate(_tensors(snapshot))
        }
        return {KEYS: pack_ids(keys), **layers}

    def read(self, tensors: Mapping[str, Tensor], start: int, stop: int, keys: Sequence[Hashable]) -> Page:
        """The page of [start, stop), whose keys these are, to be `typed`. Raises BadPage where the tensors
        are not its. For any thread: no operation of MLX is asked for, and all arrays are evaluated.
        """
        left = dict(tensors)
        if left.pop(KEYS, None) != pack_ids(keys):
            raise BadPage("its keys are not those that its name is made of")
        found = [
            [left.pop(name) for part in range(len(shapes)) if (name := f"{layer}.{part}") in left]
            for layer, shapes in enumerate(self._shapes)
        ]
        if left:
            raise BadPage("it has tensors that no layer wants")
        return tuple(
            _snapshot(spec, start, stop, own, shapes, elsewhere=layer in self._elsewhere)
            for layer, (spec, own, shapes) in enumerate(zip(self._layout, found, self._shapes, strict=True))
        )


def typed(page: Page) -> Page:
    """A page as it was read, with arrays of the types that its layers want. Lazy, and takes no memory."""
    return tuple(
        None if snapshot is None else replace(snapshot, arrays=tuple(map(_typed, snapshot.arrays)))
        for snapshot in page
    )


def _typed(x: mx.array) -> mx.array:
    return x.view(mx.bfloat16) if x.dtype == BITS else x


def _shapes(spec: LayerSpec, dtype: mx.Dtype, kept_format: str | None) -> list[Shape]:
    """What the arrays of a layer's snapshots look like."""
    match spec:
        case Full() | Rotating() | Chunked():
            sizes = [spec.head_dim, spec.head_dim if spec.value_dim is None else spec.value_dim]
            codecs = [Codec.of(kept_format, size, dtype) for size in sizes if size]
            parts = [part for codec in codecs for part in codec.parts]
            return [((1, spec.kv_heads, None, width), stored) for width, stored in parts]
        case Recurrent():
            return [
                ((1, *state.shape), STATE_DTYPES.get(state.dtype, dtype)) for state in spec.states.values()
            ]
        case Pooled():
            return [((1, 1, None, spec.size), dtype)]
        case Encoder():
            return [((1, spec.kv_heads, None, spec.head_dim), dtype)] * 2
        case Shared() | Stateless():
            return []


def _tensors(snapshot: Snapshot) -> list[Tensor]:
    """An encoder's checkpoint without a source has no arrays, and is not the same as no checkpoint."""
    return [_tensor(x) for x in snapshot.arrays] or [NOTHING]


def _tensor(x: mx.array | Absent) -> Tensor:
    if isinstance(x, Absent):  # its shape is all that there is
        return Tensor("U32", (len(x.shape),), struct.pack(f"<{len(x.shape)}I", *x.shape))
    return Tensor(NAMES[x.dtype], x.shape, _raw(x))


def _raw(array: mx.array) -> Buffer:
    """The elements in row order, shared with the array where it has them so."""
    view = memoryview(cast("Any", array))
    return view if view.c_contiguous else view.tobytes()


def _snapshot(
    spec: LayerSpec, start: int, stop: int, tensors: list[Tensor], shapes: list[Shape], *, elsewhere: bool
) -> Snapshot | None:
    """A layer's part of a page, when it is what such a layer makes. BadPage."""
    fold = isinstance(spec, Recurrent | Encoder)
    if not tensors and (fold or not shapes):
        return None
    if isinstance(spec, Encoder) and tensors == [NOTHING]:
        return Checkpoint(start, stop, ())
    if elsewhere:
        said = [(_shape_of(tensor), dtype) for tensor, (_, dtype) in zip(tensors, shapes, strict=False)]
    else:
        said = [(tensor.shape, DTYPES[tensor.dtype]) for tensor in tensors]
    tokens = {shape[TOKEN_AXIS] for shape, _ in said if len(shape) > TOKEN_AXIS}
    if not any(said == _with_tokens(shapes, count) for count in tokens or {0}):
        raise BadPage(f"its arrays are not those of a {spec.kind} layer")
    arrays = tuple(starmap(absent, said)) if elsewhere else tuple(map(_array, tensors))
    return Checkpoint(start, stop, arrays) if fold else _span(spec, start, stop, arrays, tokens)


def _with_tokens(shapes: list[Shape], count: int) -> list[tuple[tuple[int, ...], mx.Dtype]]:
    return [(tuple(count if dim is None else dim for dim in shape), dtype) for shape, dtype in shapes]


def _span(spec: LayerSpec, start: int, stop: int, arrays: tuple[mx.array, ...], tokens: set[int]) -> Span:
    """tokens: how many the arrays have. BadPage where a layer of this kind has another number."""
    if isinstance(spec, Pooled):
        if tokens != {stop // spec.every - start // spec.every}:
            raise BadPage(f"it does not hold what {stop - start:,} tokens make of a {spec.kind} layer")
        return Span(start, stop, arrays, spec.every)
    span = Span(start, stop, arrays)
    if span.held_from < start or (isinstance(spec, Full) and span.held_from > start):
        raise BadPage(f"it holds {stop - span.held_from} of {stop - start:,} tokens of a {spec.kind} layer")
    return span


def _shape_of(tensor: Tensor) -> tuple[int, ...]:
    """The shape that stands for an array of another machine. BadPage."""
    if tensor.dtype != "U32" or len(tensor.shape) != 1:
        raise BadPage("it has numbers of a layer that another machine has")
    return struct.unpack(f"<{tensor.shape[0]}I", tensor.data)


def _array(tensor: Tensor) -> mx.array:
    import numpy as np

    plain = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "U32": np.uint32}[tensor.dtype]
    return mx.array(np.frombuffer(tensor.data, plain).reshape(tensor.shape))
