"""What becomes of a checkpoint's tensors on a device: the network that takes them, their form, their bytes.

Decided from shapes and types alone; nothing is read. `forecast` and `load` go by the same plan.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.blocks.stored import Floats, Unfolded, stored_types, unfolded
from runtime.cache.layout import LayerSpec
from runtime.cpu.native.products import BLOCKS
from runtime.device import Device
from runtime.errors import WeightMismatch
from runtime.loading.unused import adapted
from runtime.models.registry.described import Described
from runtime.nn.weights.act_order import ordered_modules, take_orders, with_order
from runtime.nn.weights.as_stored import of_blocks, read_as_stored
from runtime.nn.weights.build_network import build_network
from runtime.records import dataclass
from runtime.weights.fit import fit
from runtime.weights.holding import Holding, held_bytes

Part = tuple[nn.Module, dict[str, mx.array]]
"""A network, and the tensors that belong in it."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A way to hold these tensors, and what it takes."""

    holding: Holding
    opened: Unfolded
    parts: list[Part]
    """The network and, where it is wanted, there is one and it fits, the draft head."""
    notes: tuple[str, ...]
    """Sentences for the user."""
    sizes: tuple[int, ...]
    """Bytes of each part, as it will be held."""
    stored: int
    """Bytes of all the tensors."""
    roomy: bool = True
    """Is it the fastest way, with all that was wanted?"""

    def stands(self, on: Device | None) -> bool:
        """Would `plan_for` surely find it again with what is free on `on`?"""
        return on is None or (self.roomy and sum(self.sizes) <= _affordable(self.stored, on))


def plan_for(
    described: Described,
    config: Mapping[str, Any],
    weights: Mapping[str, mx.array],
    on: Device | None,
    *,
    with_head: bool,
    to_cut: bool = False,
) -> LoadPlan:
    """The fastest way for which there is memory; with the draft head only if there is some for it too.
    to_cut: will matrices be cut? Those whose inputs lie in an order become numbers then.
    """

    def best(*, with_head: bool) -> LoadPlan:
        *faster, smallest = _ways(described, on)
        for floats, holding in faster:
            plan = _plan_of(described, config, weights, floats, holding, with_head, to_cut)
            if plan.stands(on):
                return plan
        floats, holding = smallest
        plan = _plan_of(described, config, weights, floats, holding, with_head, to_cut)
        return replace(plan, roomy=not faster)

    found = best(with_head=with_head)
    wanted = sum(found.sizes)
    if len(found.parts) > 1 and on is not None and wanted > on.available_bytes > 0:
        note = f"the draft head is not used: with it the model would take {wanted:,} bytes"
        return replace(best(with_head=False), notes=(note,), roomy=False)
    return found


def _ways(described: Described, on: Device | None) -> tuple[tuple[Floats, Holding], ...]:
    """How a device may hold weights: what is done with blocks and with tensors. What is faster comes first,
    what takes least comes last.
    """
    stay = read_as_stored if on is not None and on.as_stored else _no_module
    smallest = Holding(wanted_dtype(on), described.family.keeps_dtype, as_stored=stay)
    if on is not None and on.as_stored:
        smallest = replace(smallest, stay=BLOCKS, of_blocks=of_blocks)
    if on is None or (on.fast_quantized and not on.as_stored):
        return (("none", smallest),)
    expanding = replace(smallest, expands=lambda module: not stay(module))
    return ("inexact" if on.as_stored else "all", expanding), ("none", smallest)


def device_for_cutting(on: Device | None, config: Mapping[str, Any]) -> Device | None:
    """A device for tensors that are to be cut: GGUF's blocks, which stand for numbers while a family names
    them, become what can be (MLX's packed form, or numbers).
    """
    return replace(on, as_stored=False) if on is not None and stored_types(config) else on


def _no_module(_: nn.Module) -> bool:
    return False


def _affordable(stored: int, on: Device) -> int:
    """The most bytes that weights may be held in for the sake of speed: half of what is free; all of it where
    that is little more than they are stored in.
    """
    return max(on.available_bytes // 2, min(stored + stored // 4, on.available_bytes))


def wanted_dtype(on: Device | None) -> mx.Dtype | None:
    """The type of activations that a device wants; None: the checkpoint's own."""
    return None if on is None or on.fast_dtype is None else getattr(mx, on.fast_dtype)


def _plan_of(
    described: Described,
    config: Mapping[str, Any],
    weights: Mapping[str, mx.array],
    floats: Floats,
    holding: Holding,
    with_head: bool,
    to_cut: bool,
) -> LoadPlan:
    def fitted(opened: Unfolded) -> tuple[list[Part], tuple[str, ...]]:
        parts = [fit_network(described, config, opened.weights, holding.dtype)]
        if not with_head:
            return parts, ()
        heads, notes = _fitted_head(described, config, opened.weights, holding.dtype)
        return parts + heads, notes

    unordered = ordered_modules(weights) if to_cut else set[str]()
    opened = unfolded(weights, config, floats=floats, stay=holding.stay)
    orders = take_orders(opened.weights, unordered)
    parts, notes = fitted(opened)
    changed = opened.changed(array for _, tensors in parts for array in tensors.values())
    lost = orders.lost(parts)
    if changed or lost:
        opened = unfolded(weights, config, floats=floats, stay=holding.stay, but=changed)
        orders = take_orders(opened.weights, unordered | lost)
        parts, notes = fitted(opened)
    holding = replace(holding, blocks=opened.kept, orders=orders.arrays, with_order=with_order)
    sizes = tuple(held_bytes(network, tensors, holding) for network, tensors in parts)
    stored = sum(array.nbytes for array in weights.values())
    return LoadPlan(holding, opened, parts, notes, sizes, stored)


def fit_network(
    described: Described,
    config: Mapping[str, Any],
    weights: dict[str, mx.array],
    dtype: mx.Dtype | None = mx.float32,
) -> Part:
    """The network, and these tensors under its own names. Raises WeightMismatch."""
    network = described.network()
    fitted = adapted(described, weights)
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
    own = float_of(stored)
    return {
        name: array.astype(own) if array.dtype == mx.float32 and array.ndim > 1 and not kept(name) else array
        for name, array in fitted.items()
    }


def _fitted_head(
    described: Described, config: Mapping[str, Any], weights: dict[str, mx.array], dtype: mx.Dtype | None
) -> tuple[list[Part], tuple[str, ...]]:
    """The draft head among these tensors, if there is one: at most one part, and notes."""
    head = described.family.head
    fitted = {} if head is None else adapted(described, weights, head)
    if head is None or not fitted:
        return [], ()
    network = build_network(head.build, described.config)
    try:
        fit(network, fitted, config)
    except WeightMismatch as mismatch:
        return [], (f"the draft head is not used: {mismatch}",)
    return [(network, _narrowed(described, fitted, weights) if dtype is None else fitted)], ()


def head_layout(described: Described) -> tuple[LayerSpec, ...]:
    head = described.family.head
    return () if head is None else tuple(head.layout(described.config))


def float_of(weights: Mapping[str, mx.array]) -> mx.Dtype:
    """The checkpoint's own activation dtype: that of most of its floating numbers."""
    counts: dict[mx.Dtype, int] = {}
    for array in weights.values():
        if array.dtype in (mx.float32, mx.float16, mx.bfloat16):
            counts[array.dtype] = counts.get(array.dtype, 0) + array.size
    return max(counts, key=lambda dtype: counts[dtype], default=mx.float32)
