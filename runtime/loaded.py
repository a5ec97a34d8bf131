"""A model in memory: its network, what its layers remember, and the limits that follow.

Also the two questions asked before anything is loaded: do these tensors fit this config, and how many bytes
will it take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

from runtime.blocks.stored import unfolded
from runtime.cache.build import build_memory
from runtime.cache.layout import LayerSpec
from runtime.device import Device
from runtime.errors import BadTokenIds, TooLarge, WeightMismatch
from runtime.models.architecture import Described, describe
from runtime.models.unused import without_unused
from runtime.nn import ops
from runtime.nn.ready import make_ready
from runtime.nn.rope_spec import long_after
from runtime.step import Adapters, Inputs, Step
from runtime.weights import DTYPES, expanded_bytes, fill, fit, held_bytes, weight_bytes

if TYPE_CHECKING:
    import numpy as np

_Part = tuple[nn.Module, dict[str, mx.array]]
"""A network, and the tensors that belong in it."""


@dataclass(frozen=True, slots=True)
class Head:
    """A draft head out of the target's own file."""

    network: Any
    """Its modules, filled with weights."""
    layout: tuple[LayerSpec, ...]
    """What each of its layers remembers."""
    weight_bytes: int
    """As they are held."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A network filled with weights."""

    described: Described
    """What its config says."""
    network: Any
    """Its modules, as the family's `build` made them."""
    dtype: mx.Dtype
    """What activations and layer memory use."""
    weight_bytes: int
    """Of the network, as they are held."""
    head: Head | None = None
    """The draft head, where there is one and it was asked for."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding table, V; every id fed to the network is below it."""
        return self.described.vocab_size

    @property
    def context_length(self) -> int:
        return self.described.context_length


def check_weights(config: Mapping[str, Any], tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[str]:
    """What is wrong with these tensors for this config: one sentence each, [] when they fit.

    tensors: name -> (safetensors dtype name, shape), exactly as stored. Nothing is allocated or read. Raises
    UnsupportedModel when the config itself cannot be run.
    """
    described = describe(config)
    odd = [f"{name} has dtype {dtype}" for name, (dtype, _) in sorted(tensors.items()) if dtype not in DTYPES]
    if odd:
        return odd
    placeholders = {name: mx.zeros(shape, DTYPES[dtype]) for name, (dtype, shape) in tensors.items()}
    try:
        _fitted(described, config, unfolded(placeholders, config, floats=False).weights)
    except WeightMismatch as mismatch:
        return mismatch.problems
    return []


@dataclass(frozen=True, slots=True)
class Demand:
    """What loading will take."""

    described: Described
    """What the config says."""
    weight_bytes: int
    """As they will be held."""
    element_bytes: int
    """Of an activation, and so of a key or value unless another format is asked for."""
    head_bytes: int = 0
    """Of the draft head's weights, as they will be held."""
    head_layout: tuple[LayerSpec, ...] = ()
    """What the draft head's layers remember; () for no head."""


def foresee(
    config: Mapping[str, Any],
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    *,
    on: Device | None = None,
    with_head: bool = False,
) -> Demand:
    """What `load_model` will hold of these tensors, given as in `check_weights`. Nothing is allocated or
    read. Raises WeightMismatch, UnsupportedModel.
    """
    described = describe(config)
    odd = [f"{name} has dtype {dtype}" for name, (dtype, _) in sorted(tensors.items()) if dtype not in DTYPES]
    if odd:
        raise WeightMismatch(odd)
    stored = {name: mx.zeros(shape, DTYPES[dtype]) for name, (dtype, shape) in tensors.items()}
    placeholders = unfolded(stored, config, floats=False).weights
    dtype = None if on is None or on.fast_dtype is None else getattr(mx, on.fast_dtype)
    parts = [_fitted(described, config, placeholders, dtype)]
    if with_head:
        parts += _fitted_head(described, config, placeholders, dtype)[0]
    expand, wanted = _demand(parts, dtype, on)
    if on is not None and wanted > on.available_bytes > 0 and len(parts) > 1:
        del parts[1]  # as load_model does
        expand, _ = _demand(parts, dtype, on)
    sizes = [
        expanded_bytes(network, dtype) if expand else held_bytes(fitted, dtype) for network, fitted in parts
    ]
    element_bytes = (dtype or _float_of(placeholders)).size
    if len(parts) == 1:
        return Demand(described, sizes[0], element_bytes)
    return Demand(described, sizes[0], element_bytes, sizes[1], _head_layout(described))


def load_model(
    config: Mapping[str, Any],
    shards: Sequence[Path] | Mapping[str, mx.array],
    *,
    on: Device | None = None,
    with_head: bool = False,
) -> LoadedModel:
    """Read weights into a network, in the form that is fast on the device (None: as they are stored).

    shards: safetensors files whose headers were validated by the caller, or the tensors themselves.
    with_head: the draft head too, if there is one; one that does not fit is left out with a note. Where
    quantized products are slow, as on a processor, quantized weights are expanded to floats if that takes no
    more than half of what is free.
    Raises WeightMismatch, UnsupportedModel, and TooLarge before anything is allocated.
    """
    described = describe(config)
    weights = dict(shards) if isinstance(shards, Mapping) else _read(shards)
    dtype = None if on is None or on.fast_dtype is None else getattr(mx, on.fast_dtype)
    compute = dtype or _float_of(weights)
    opened = unfolded(weights, config, floats=False)
    parts, notes = _parts(described, config, opened.weights, dtype, with_head=with_head)
    expand, wanted = _demand(parts, dtype, on)
    if on is not None and wanted > on.available_bytes > 0 and len(parts) > 1:
        notes = (f"the draft head is not used: with it the model would take {wanted:,} bytes",)
        del parts[1]
        expand, wanted = _demand(parts, dtype, on)
    if on is not None and wanted > on.available_bytes > 0:
        raise TooLarge(wanted, on.available_bytes)
    if opened.types and expand:
        # As floats blocks are exact; by way of MLX's codes some would not be.
        opened = unfolded(weights, config, floats=True)
        parts, _ = _parts(described, config, opened.weights, dtype, with_head=len(parts) > 1)
    notes += opened.notes
    for held in (weights, opened.weights):
        held.clear()  # tensors that no part took would stay in memory
    ops.settle()
    for module, fitted in parts:
        fill(module, fitted, dtype=dtype, expand=expand, keep=described.family.keeps_dtype)
        module.eval()
        make_ready(module, compute)  # last: it makes twins of layers, with the arrays they have by now
    network = parts[0][0]
    head = _head(described, parts[1][0]) if len(parts) > 1 else None
    return LoadedModel(described, network, compute, weight_bytes(network), head, notes)


def _read(shards: Sequence[Path]) -> dict[str, mx.array]:
    weights: dict[str, mx.array] = {}
    for shard in shards:
        loaded = mx.load(str(shard), format="safetensors")
        assert isinstance(loaded, dict)
        weights.update(loaded)
    return weights


def check_ids(ids: Sequence[int], vocab_size: int) -> None:
    """Raise BadTokenIds unless every id is an int in [0, vocab_size): MLX reads outside the table
    otherwise.
    """
    for place, token in enumerate(ids):
        if type(token) is not int or not 0 <= token < vocab_size:
            raise BadTokenIds(
                f"token id {token!r:.40} at place {place} is not in the vocabulary of {vocab_size}"
            )


def _parts(
    described: Described,
    config: Mapping[str, Any],
    weights: dict[str, mx.array],
    dtype: mx.Dtype | None,
    *,
    with_head: bool,
) -> tuple[list[_Part], tuple[str, ...]]:
    """The network and, where it is wanted and there is one, the draft head; and notes on it."""
    parts = [_fitted(described, config, weights, dtype)]
    heads, notes = _fitted_head(described, config, weights, dtype) if with_head else ([], ())
    return [*parts, *heads], notes


def _fitted(
    described: Described,
    config: Mapping[str, Any],
    weights: dict[str, mx.array],
    dtype: mx.Dtype | None = mx.float32,
) -> _Part:
    network = described.family.build(described.config)
    fitted = described.family.adapt(described.config, without_unused(described, weights))
    fit(network, fitted, config)
    return network, _narrowed(described, fitted, weights) if dtype is None else fitted


def _narrowed(
    described: Described, fitted: dict[str, mx.array], stored: dict[str, mx.array]
) -> dict[str, mx.array]:
    """For devices that compute in the checkpoint's type: matrices that a family computed in float32 (`adapt`)
    from narrower ones in that type again, since products want one type. Vectors stay wide.
    """
    kept = described.family.keeps_dtype
    matrices = [array for name, array in stored.items() if array.ndim > 1 and not kept(name)]
    if any(array.dtype == mx.float32 for array in matrices):
        return fitted
    own = _float_of(stored)
    return {
        name: array.astype(own) if array.dtype == mx.float32 and array.ndim > 1 and not kept(name) else array
        for name, array in fitted.items()
    }


def _fitted_head(
    described: Described, config: Mapping[str, Any], weights: dict[str, mx.array], dtype: mx.Dtype | None
) -> tuple[list[_Part], tuple[str, ...]]:
    """The draft head among these tensors, if there is one: at most one part, and notes."""
    head = described.family.head
    fitted = {} if head is None else head.adapt(described.config, without_unused(described, weights))
    if head is None or not fitted:
        return [], ()
    network = head.build(described.config)
    try:
        fit(network, fitted, config)
    except WeightMismatch as mismatch:
        return [], (f"the draft head is not used: {mismatch}",)
    return [(network, _narrowed(described, fitted, weights) if dtype is None else fitted)], ()


def _head(described: Described, network: nn.Module) -> Head:
    return Head(network, _head_layout(described), weight_bytes(network))


def _head_layout(described: Described) -> tuple[LayerSpec, ...]:
    head = described.family.head
    return () if head is None else tuple(head.layout(described.config))


def _demand(parts: Sequence[_Part], dtype: mx.Dtype | None, on: Device | None) -> tuple[bool, int]:
    """Will quantized weights be expanded, and how many bytes will all weights take then?"""
    expanded = sum(expanded_bytes(network, dtype) for network, _ in parts)
    if on is not None and not on.fast_quantized and expanded <= on.available_bytes // 2:
        return True, expanded
    return False, sum(held_bytes(fitted, dtype) for _, fitted in parts)


def _float_of(weights: Mapping[str, mx.array]) -> mx.Dtype:
    """The checkpoint's own activation dtype: that of most of its floating numbers."""
    counts: dict[mx.Dtype, int] = {}
    for array in weights.values():
        if array.dtype in (mx.float32, mx.float16, mx.bfloat16):
            counts[array.dtype] = counts.get(array.dtype, 0) + array.size
    return max(counts, key=lambda dtype: counts[dtype], default=mx.float32)


def score(
    model: LoadedModel,
    ids: Sequence[int],
    chunk: int,
    kept_format: str | None = None,
    source: Sequence[int] = (),
    adapters: Adapters | None = None,
) -> "np.ndarray":
    """What the model predicts after each of `ids`, float32 [T, V], read in steps of `chunk` tokens.

    kept_format: as in KVRows. source: what the encoder reads, for models whose prompts an encoder reads; ids
    are then what the decoder is given, from the id on that answers begin with. adapters: of the one row.
    """
    import numpy as np

    check_ids(ids, model.vocab_size)
    check_ids(source, model.vocab_size)
    border = long_after(model.described.config)
    long = None if border is None else (len(ids) > border,)
    memory = build_memory(model.described.layout, dtype=model.dtype, kept_format=kept_format)
    rows: list[np.ndarray] = []
    for start in range(0, len(ids), chunk):
        part = list(ids[start : start + chunk])
        inputs = Inputs(mx.array([part], dtype=mx.int32))
        step = Step(starts=(start,), counts=(len(part),), long=long, inputs=inputs, adapters=adapters)
        memory.prepare(step)
        if source and not start:
            model.network.encode(Inputs(mx.array([source], dtype=mx.int32)), step, memory)
        hidden = model.network(step, memory)
        rows.append(np.array(model.network.logits(hidden, step)[0].astype(mx.float32)))
        memory.commit(step, step.counts)
    return np.concatenate(rows)
