"""What a model consists of that may be cut, from its config and the headers of tensors. Nothing is read."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec, Shared, sequence_bytes
from runtime.device import Device
from runtime.errors import WeightMismatch
from runtime.loading.plan import device_for_cutting, float_of, plan_for, wanted_dtype
from runtime.models.registry.described import describe
from runtime.ranks.pairs import brought_share
from runtime.ranks.pieces import Shard
from runtime.ranks.plan import Brought, Copy, LayerPart, Parts
from runtime.ranks.shards import Splits, splits_of
from runtime.ranks.trunk import LayerChain, chain_of
from runtime.records import dataclass
from runtime.weights.files import DTYPES, dtype_problems
from runtime.weights.holding import held_tensors


@dataclass(frozen=True, slots=True)
class Remembered:
    """What layers are to remember."""

    tokens: int = 0
    """Of each sequence."""
    sequences: int = 1
    kept_format: str | None = None
    """Of keys and values; None: that of activations."""

    def of(self, specs: Sequence[LayerSpec], element_bytes: int) -> int:
        one = sequence_bytes(specs, self.tokens, element_bytes, kept_format=self.kept_format)
        return one * self.sequences


NOTHING = Remembered()


def parts_of(
    config: Mapping[str, Any],
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    *,
    shards: int = 1,
    memory: Remembered = NOTHING,
    on: Device | None = None,
    adapters: Iterable[tuple[str, tuple[int, ...]]] = (),
) -> Parts:
    """The parts of a model, given as in `loading.forecast.foresee`, of which `shards` ranks share each stage.

    adapters: shapes of tensors that they bring, named as in `runtime.nn.adapters.low_rank`.
    on: a device like those of all hosts; its memory is not looked at. Raises CannotCut, naming what cannot be
    cut, and WeightMismatch and UnsupportedModel as loading would.
    """
    described = describe(config)
    odd = dtype_problems(tensors)
    if odd:
        raise WeightMismatch(odd)
    stored = {name: mx.zeros(shape, DTYPES[dtype]) for name, (dtype, shape) in tensors.items()}
    on = device_for_cutting(on, config) if shards > 1 else on
    planned = plan_for(described, config, stored, on, with_head=False, to_cut=shards > 1)
    network, fitted = planned.parts[0]
    layout = described.layout
    chain = chain_of(network, layout, described.name)
    splits = [splits_of(chain, layout, Shard(i, shards)) for i in range(shards)] if shards > 1 else []
    element_bytes = (wanted_dtype(on) or float_of(stored)).size
    held, brought = (_BothSums(chain, splits) for _ in range(2))
    for name, nbytes in held_tensors(network, fitted, planned.holding):
        held.add(name, nbytes, partial(Splits.share, tensor=name))
    for name, shape in adapters:
        brought.add(name, math.prod(shape) * element_bytes, partial(brought_share, name=name))
    remembered, whole = (splits[0].layout, splits[0].whole) if splits else (layout, ())
    memories = [
        memory.of(chain.specs(remembered, place), element_bytes) for place in range(len(chain.layers))
    ]
    parts = _parts(described.name, held.own, brought.own, memories, _joined(chain, layout))
    encoder = None
    if held.read is not None and brought.read is not None:
        none = [0] * len(held.read.layers)
        encoder = _parts(f"{described.name}'s encoder", held.read, brought.read, none)
    return replace(parts, whole=whole, encoder=encoder)


def _parts(
    name: str,
    held: "_Sums",
    brought: "_Sums",
    memories: Sequence[int],
    joined: frozenset[int] = frozenset(),
) -> Parts:
    """memories: what a rank remembers of each layer."""
    layers = tuple(LayerPart(tuple(its), own) for its, own in zip(held.layers, memories, strict=True))
    copies = tuple(
        Copy(lent.owner, lent.readers, tuple(weights), tuple(adapters))
        for lent, weights, adapters in zip(held.chain.lent, held.lent, brought.lent, strict=True)
    )
    added = brought.as_brought()
    return Parts(name, held.shards, layers, *held.around, joined, brought=added, copies=copies)


class _BothSums:
    """Of a network, and of its encoder where it has one."""

    def __init__(self, chain: LayerChain, splits: Sequence[Splits]) -> None:
        """splits: of each shard; none where a rank has all."""
        self.own = _Sums(chain, splits)
        self.read = None if chain.reader is None else _Sums(chain.reader, splits)

    def add(self, name: str, nbytes: int, share: Callable[[Splits], float]) -> None:
        """share: how much of this tensor one of the ranks of a stage has."""
        if self.read is not None and name.startswith(f"{self.read.chain.path}."):
            self.read.add(name, nbytes, share)
        else:
            self.own.add(name, nbytes, share)


class _Sums:
    """Bytes of tensors by where they stand."""

    def __init__(self, chain: LayerChain, splits: Sequence[Splits]) -> None:
        """splits: of each shard; none where a rank has all."""
        self.chain, self._splits = chain, splits
        self.shards = max(len(splits), 1)
        self.layers = [[0] * self.shards for _ in chain.layers]
        self.lent = [[0] * self.shards for _ in chain.lent]
        self._lent = [f"{chain.prefix(one.owner)}{one.name}." for one in chain.lent]
        self.tables = self.ending = self.everywhere = 0

    @property
    def around(self) -> tuple[int, int, int]:
        """Of tables, of what comes behind the layers, and of what all ranks have."""
        return self.tables, self.ending, self.everywhere

    def as_brought(self) -> Brought:
        return Brought(tuple(map(tuple, self.layers)), *self.around)

    def add(self, name: str, nbytes: int, share: Callable[[Splits], float]) -> None:
        """share: how much of this tensor one of the ranks of a stage has."""
        place = self.chain.place(name)
        if place is None:
            if self.chain.is_everywhere(name):
                self.everywhere += nbytes
            elif self.chain.enters(name):
                self.tables += nbytes
            else:
                self.ending += nbytes
        else:
            taken = [round(nbytes * share(splits)) for splits in self._splits] or [nbytes]
            lent = (sums for sums, path in zip(self.lent, self._lent, strict=True) if name.startswith(path))
            for sums in (self.layers[place], *lent):
                sums[:] = map(sum, zip(sums, taken, strict=True))


def _joined(chain: LayerChain, layout: Sequence[LayerSpec]) -> frozenset[int]:
    """Layers between one that takes more than the stream of an earlier one, its memory or what it has put
    into the step, and that one: no stage may begin there.
    """
    of = chain.remembers
    takes = [(of(i), of(spec.layer)) for i, spec in enumerate(layout) if isinstance(spec, Shared)]
    for place, layer in enumerate(chain.layers):
        sources = {getattr(module, "takes_from", None) for module in layer.modules()}
        takes += [(place, source) for source in sources if source is not None]
    return frozenset(between for place, source in takes for between in range(source + 1, place + 1))
