"""Low-rank adapters of a step's rows: y += scale · (x A) B, for the rows that have one (LoRA, arXiv
2106.09685).

A model's weights stay as they are, packed or not; rows with different adapters and rows without one share a
step. Wired: every matrix and table that a network asks through `runtime.nn.linear`, stacks of experts, an
output head of its own; not a tied head, nor networks of foreign classes. Nobody attaches adapters to requests
yet: the ADAPTER directive is refused.

Dimensions: B rows, L tokens, r the rank, E experts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.errors import WeightMismatch
from runtime.nn.low_rank import LowRank


class Adapter:
    """Pairs for modules of one network, by the modules' names in it (`model.layers.0.self_attn.q_proj`).

    Raises WeightMismatch for a name that the network does not have. A module that is put in another's place
    later has no pair; make the adapter again.
    """

    def __init__(self, network: nn.Module, pairs: Mapping[str, LowRank]) -> None:
        modules: dict[str, Any] = dict(network.named_modules())
        unknown = sorted(name for name in pairs if name not in modules)
        if unknown:
            raise WeightMismatch([f"{name} belongs to no module of this architecture" for name in unknown])
        self._of = {id(modules[name]): (modules[name], pair) for name, pair in pairs.items()}

    def pair(self, module: object) -> LowRank | None:
        """What is added behind this module. Modules are held, so no other one gets its id."""
        found = self._of.get(id(module))
        return None if found is None else found[1]


class RowAdapters:
    """The adapters of a step's rows (`runtime.step.Adapters`), None for a row without one."""

    def __init__(self, rows: Sequence[Adapter | None]) -> None:
        places: dict[Adapter, list[int]] = {}
        for place, adapter in enumerate(rows):
            if adapter is not None:
                places.setdefault(adapter, []).append(place)
        whole = len(rows)
        self._groups = [
            (adapter, None if len(its) == whole else mx.array(its, dtype=mx.int32))
            for adapter, its in places.items()
        ]

    def change(self, module: Mapping[str, object]) -> bool:
        children = module.values()
        return any(adapter.pair(child) is not None for adapter, _ in self._groups for child in children)

    def linear(self, module: object, x: mx.array, y: mx.array) -> mx.array:
        for adapter, rows in self._groups:
            pair = adapter.pair(module)
            if pair is not None:
                mine = x if rows is None else x[rows]
                y = _added(y, (mine @ _as(pair.down, x)) @ _as(pair.up, x), rows, pair.scale)
        return y

    def embed(self, module: object, ids: mx.array, y: mx.array) -> mx.array:
        for adapter, rows in self._groups:
            pair = adapter.pair(module)
            if pair is not None:
                mine = ids if rows is None else ids[rows]
                y = _added(y, _as(pair.down, y)[mine] @ _as(pair.up, y), rows, pair.scale)
        return y

    def gather(self, module: object, x: mx.array, chosen: mx.array, y: mx.array) -> mx.array:
        for adapter, rows in self._groups:
            pair = adapter.pair(module)
            if pair is not None:
                mine, asked = (x, chosen) if rows is None else (x[rows], chosen[rows])
                inner = mx.gather_mm(mine, _as(pair.down, x), rhs_indices=asked)
                y = _added(y, mx.gather_mm(inner, _as(pair.up, x), rhs_indices=asked), rows, pair.scale)
        return y


def _as(matrix: mx.array, like: mx.array) -> mx.array:
    return matrix.astype(like.dtype)


def _added(y: mx.array, more: mx.array, rows: mx.array | None, scale: float) -> mx.array:
    more = (more * scale).astype(y.dtype)
    return y + more if rows is None else y.at[rows].add(more)
