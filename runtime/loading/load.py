"""Reading a model's weights into its network, in two steps: `begin_load` decides from headers how they will
be held, and `Loading.read` reads them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from runtime.blocks.stored import stored_types
from runtime.cache.layout import LayerSpec
from runtime.cpu.native.mapped_weights import Mapped, mapped
from runtime.cpu.native.products import BLOCKS
from runtime.device import Device
from runtime.errors import TooLarge
from runtime.loaded import Head, LoadedModel
from runtime.loading.forecast import Demand, demand_of
from runtime.loading.plan import (
    LoadPlan,
    Part,
    device_for_cutting,
    float_of,
    head_layout,
    plan_for,
    wanted_dtype,
)
from runtime.models.registry.described import Described, describe
from runtime.nn.operations import ops
from runtime.nn.weights.embedding_types import set_embedding_types
from runtime.records import dataclass
from runtime.weights.files import load_file
from runtime.weights.holding import fill, held_bytes, weight_bytes


@dataclass(frozen=True, slots=True)
class LocalPart:
    """This machine's part of a model."""

    part: Part
    layout: tuple[LayerSpec, ...]
    """What each layer remembers here."""
    everywhere: tuple[LayerSpec, ...]
    """See LoadedModel."""


class Cut(Protocol):
    """Cuts a model for one of several machines (`runtime.ranks`)."""

    @property
    def ranks(self) -> int:
        """Number of machines."""
        ...

    @property
    def splits(self) -> bool:
        """Are tensors cut, and not only selected?"""
        ...

    @property
    def has_head(self) -> bool:
        """Has this machine the draft head?"""
        ...

    def __call__(
        self, described: Described, planned: LoadPlan, dtype: mx.Dtype, stored: Mapping[str, mx.array]
    ) -> LocalPart:
        """The network and those of its tensors that belong here; no others are read. planned: for the whole
        model. dtype: of activations. stored: all tensors, of which the planned ones were made.
        """
        ...


@dataclass(slots=True)
class Loading:
    """A model whose weights are still where they are: how they will be held is decided."""

    described: Described
    """What its config says, with what is remembered here of all layers."""
    dtype: mx.Dtype
    """As in LoadedModel."""
    plan: LoadPlan
    stored: dict[str, mx.array]
    """The tensors that the planned ones are made of."""
    everywhere: tuple[LayerSpec, ...] = ()
    """As in LoadedModel."""

    @property
    def demand(self) -> Demand:
        """What it will take."""
        return demand_of(self.described, self.plan, self.dtype)

    def read(self, on: Device | None, advance: Callable[[int], object] = lambda _: None) -> LoadedModel:
        """The model, once and on the thread that began it. on: as in `load_model`. advance: called with the
        bytes of each tensor that has been read; what it raises ends the load.

        Raises TooLarge before anything is allocated, and WeightMismatch.
        """
        plan, size = self.plan, sum(self.plan.sizes)
        if on is not None and size > on.available_bytes > 0:
            raise TooLarge(size, on.available_bytes)
        for tensors in (self.stored, plan.opened.weights):
            tensors.clear()  # those that no part took would stay in memory
        for module, fitted in plan.parts:
            fill(module, fitted, plan.holding, advance)
            module.eval()
            set_embedding_types(module, self.dtype)
        (network, _), *heads = plan.parts
        return LoadedModel(
            self.described,
            network,
            self.dtype,
            weight_bytes(network),
            _head(self.described, heads[0][0]) if heads else None,
            plan.notes + plan.opened.notes,
            self.everywhere,
        )


def load_model(
    config: Mapping[str, Any],
    shards: Sequence[Path] | Mapping[str, mx.array],
    *,
    on: Device | None = None,
    with_head: bool = False,
) -> LoadedModel:
    """Read weights into a network, in the form that is fast on the device `on` (None: as they are stored).

    Where matrix products read weights as they are stored, they stay so. Where products of packed weights are
    slow, as on a processor without kernels of our own, packed weights are expanded to floats if that takes no
    more than half of the free memory.

    shards: safetensors files whose headers the caller has validated, or the tensors themselves. with_head:
    load the draft head too, if there is one; one that does not fit is left out with a note.

    Raises WeightMismatch, UnsupportedModel, and TooLarge before anything is allocated.
    """
    return begin_load(config, shards, on=on, with_head=with_head).read(on)


def begin_load(
    config: Mapping[str, Any],
    shards: Sequence[Path] | Mapping[str, mx.array],
    *,
    on: Device | None = None,
    with_head: bool = False,
    fixed: bool = False,
    cut: Cut | None = None,
) -> Loading:
    """What `load_model` does before it reads a number. fixed: the files will never change, so they may be
    mapped (`runtime.cpu.native.mapped_weights`). cut: selects the part that is held here; None: all.

    Raises WeightMismatch, UnsupportedModel.
    """
    described = describe(config)
    named = isinstance(shards, Mapping)
    stored = dict(shards) if named else read_tensors(shards, config, on, fixed=fixed)
    dtype = wanted_dtype(on) or float_of(stored)
    ops.settle()
    if cut is None:
        plan = plan_for(described, config, stored, on, with_head=with_head)
        return Loading(described, dtype, plan, stored)
    held, plan = _cut(described, config, stored, on, cut, dtype, with_head=with_head)
    return Loading(replace(described, layout=held.layout), dtype, plan, stored, held.everywhere)


def _head(described: Described, network: nn.Module) -> Head:
    return Head(network, head_layout(described), weight_bytes(network))


def _cut(
    described: Described,
    config: Mapping[str, Any],
    weights: dict[str, mx.array],
    on: Device | None,
    cut: Cut,
    compute: mx.Dtype,
    *,
    with_head: bool,
) -> tuple[LocalPart, LoadPlan]:
    plan = plan_to_cut(described, config, weights, on, cut, with_head=with_head)
    held = cut(described, plan, compute, weights)
    size = held_bytes(*held.part, plan.holding)
    parts, sizes = [held.part, *plan.parts[1:]], (size, *plan.sizes[1:])
    return held, replace(plan, parts=parts, sizes=sizes)


def plan_to_cut(
    described: Described,
    config: Mapping[str, Any],
    weights: Mapping[str, mx.array],
    on: Device | None,
    cut: Cut,
    *,
    with_head: bool,
) -> LoadPlan:
    """Decide how weights are held as if this machine held all of them and had the room of all machines, so
    that all machines decide alike.
    """
    roomy = None if on is None else replace(on, available_bytes=on.available_bytes * cut.ranks)
    roomy = device_for_cutting(roomy, config) if cut.splits else roomy
    with_head = with_head and cut.has_head
    return plan_for(described, config, weights, roomy, with_head=with_head, to_cut=cut.splits)


def read_tensors(
    shards: Sequence[Path], config: Mapping[str, Any], on: Device | None, *, fixed: bool
) -> dict[str, mx.array]:
    """The tensors of these files, not read yet. fixed: as in `begin_load`."""
    may_map = _mappable(config, on) if fixed else None
    weights: dict[str, mx.array] = {}
    for shard in shards:
        there = mapped(shard, may_map) if may_map else Mapped({}, others=True)
        if there.others:
            weights |= load_file(shard)
        weights |= there.arrays
    return weights


def _mappable(config: Mapping[str, Any], on: Device | None) -> Callable[[str], bool] | None:
    """Tells by name which tensors are computed with as they are stored, so that they can be mapped; None if
    the device computes with none so. Blocks that become something else are read, and freed one by one.
    """
    if on is None or not on.as_stored:
        return None
    opened = {f"{module}.weight" for module, kind in stored_types(config).items() if kind.name not in BLOCKS}
    return lambda name: name not in opened
