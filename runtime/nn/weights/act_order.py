"""Packed matrices whose inputs lie in another order than they come in: `X.order`, uint32, beside X's codes.

Where a tool has put inputs that matter alike into one group (GPTQ's act-order), a group's inputs are no
neighbours. Packed in the order of their groups they are, and what is multiplied is brought into that order:

    y[o] = Σ over i of x[order[i]] · W[o, i]

E experts, which have an order each, store [E, in]. What a family makes of codes (joins, cuts, turns) has no
such place: it is made of numbers, whose columns stand as inputs come in.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.nn.feed_forward.experts import QuantizedSwitchLinear
from runtime.nn.linear import Takes
from runtime.nn.operations import ops
from runtime.records import dataclass
from runtime.weights.packing import as_they_come, stored_packing, unpacked

LEAF = ".order"


class OrderedLinear(nn.QuantizedLinear):
    """order: [in]."""

    takes_pairs: ClassVar[Takes] = "matrix"

    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.linear(self, mx.take(x, self["order"], axis=-1))


class OrderedSwitchLinear(QuantizedSwitchLinear):
    """order: [E, in]."""

    takes_pairs: ClassVar[Takes] = "experts"

    def __call__(self, x: mx.array, chosen: mx.array, *, ordered: bool = False) -> mx.array:
        own = mx.broadcast_arrays(x, self["order"][chosen][..., None, :])
        return ops.table.gather(self, mx.take_along_axis(*own, axis=-1), chosen, ordered)


_ORDERED: dict[type[nn.Module], type[nn.Module]] = {
    nn.QuantizedLinear: OrderedLinear,
    QuantizedSwitchLinear: OrderedSwitchLinear,
}


def with_order(module: nn.Module, order: mx.array) -> nn.Module:
    """The module that takes this one's place."""
    kind = _ORDERED[type(module)]
    twin = kind.__new__(kind)
    vars(twin).update(vars(module))
    for name, value in module.items():
        twin[name] = value
    twin["order"] = order
    return twin


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of matrices, by the ids of their codes."""

    arrays: Mapping[int, mx.array]
    modules: Mapping[int, str]
    """Whose they are in the file."""
    codes: tuple[mx.array, ...]
    """So that no other array gets the id of one of these."""

    def lost(self, parts: Iterable[tuple[nn.Module, Mapping[str, mx.array]]]) -> set[str]:
        """Modules whose codes stand in no module of these networks that takes an order."""
        found = {
            id(tensors.get(f"{path}.weight"))
            for network, tensors in parts
            for path, module in network.named_modules()
            if type(module) in _ORDERED
        }
        return {module for one, module in self.modules.items() if one not in found}


def ordered_modules(weights: Mapping[str, mx.array]) -> set[str]:
    """Those that have an order beside their codes."""
    modules = (name.removesuffix(LEAF) for name in weights if name.endswith(LEAF))
    return {one for one in modules if f"{one}.scales" in weights and f"{one}.weight" in weights}


def take_orders(weights: dict[str, mx.array], but: Collection[str] = ()) -> Orders:
    """Takes orders out of the weights; those of the modules `but` are no longer needed, as their codes become
    numbers. Nothing is read. An order that does not fit stays, and belongs to no module.
    """
    arrays: dict[int, mx.array] = {}
    modules: dict[int, str] = {}
    held: list[mx.array] = []
    for module in sorted(ordered_modules(weights)):
        codes, order, scales = (weights[module + leaf] for leaf in (".weight", LEAF, ".scales"))
        biases, width = weights.get(f"{module}.biases"), order.shape[-1] if order.ndim else 0
        packing = stored_packing(width, codes, scales, biases) if width else None
        if packing is None or order.shape != (*codes.shape[:-2], width) or order.dtype != mx.uint32:
            continue
        del weights[module + LEAF]
        if module in but:
            del weights[f"{module}.scales"]
            weights.pop(f"{module}.biases", None)
            weights[f"{module}.weight"] = unpacked(codes, scales, biases, packing, mx.float32, order)
        else:
            arrays[id(codes)], modules[id(codes)] = order, module
            held.append(codes)
    return Orders(arrays, modules, tuple(held))


def as_inputs_come(module: Any, numbers: mx.array) -> mx.array:
    """The numbers of a module's matrix, columns where their inputs are."""
    return as_they_come(numbers, module["order"]) if "order" in module else numbers
