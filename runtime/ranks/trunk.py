"""Where the layers of a network are: what may be cut into stages, and what stands around it.

A network whose prompts an encoder reads has two such chains, which are cut alike: each rank has layers of
both.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Stateless
from runtime.errors import CannotCut
from runtime.nn.linear import TABLES
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Lent:
    """A module of one layer that later ones run, too."""

    owner: int
    name: str
    """In its layer."""
    readers: tuple[int, ...]

    def reaches(self, start: int, stop: int) -> bool:
        """Do layers [start, stop) need it, and lack it?"""
        return self.owner < start and any(start <= reader < stop for reader in self.readers)


@dataclass(frozen=True, slots=True)
class Beside:
    """A module that stands around the layers."""

    holder: Any
    """The trunk, or the network of a table that several trunks look ids up in."""
    name: str
    """In its holder."""
    path: str
    """In the network."""
    module: Any


@dataclass(frozen=True, slots=True)
class LayerChain:
    """Layers that are called in turn, and the trunk that calls them."""

    trunk: Any
    path: str
    """Of the trunk in its network."""
    name: str
    """Of the list of layers in the trunk."""
    edges: tuple[int, ...]
    """Where in the layout each layer's entries begin, and the last one's end."""

    everywhere: tuple[str, ...]
    """Modules beside the layers that every rank has: they make what layers are given besides the stream."""
    tables: tuple[Beside, ...] = ()
    """Those beside the trunk."""
    reader: "LayerChain | None" = None
    """The encoder, where one reads prompts for these layers."""

    @property
    def both(self) -> "tuple[LayerChain, ...]":
        """The encoder first, where there is one."""
        return (self,) if self.reader is None else (self.reader, self)

    @property
    def layers(self) -> list[Any]:
        return self.trunk[self.name]

    @property
    def lent(self) -> "tuple[Lent, ...]":
        """Modules that several layers run. Each of these but the one that has it says whose it `borrows`."""
        readers: dict[tuple[int, str], list[int]] = {}
        for place, layer in enumerate(self.layers):
            borrowed = getattr(layer, "borrows", None)
            if borrowed is not None:
                readers.setdefault(borrowed, []).append(place)
        return tuple(Lent(*whose, tuple(places)) for whose, places in readers.items())

    def prefix(self, layer: int) -> str:
        """How the names of this layer's tensors begin."""
        return f"{self.path}.{self.name}.{layer}."

    def place(self, tensor: str) -> int | None:
        """The layer that this tensor is of; None for one of what stands around them."""
        rest = tensor.removeprefix(f"{self.path}.{self.name}.")
        return None if rest == tensor else int(rest.partition(".")[0])

    def enters(self, tensor: str) -> bool:
        """Is this tensor of a table, which comes before the layers?"""
        return tensor.startswith(tuple(f"{one.path}." for one in self.around() if is_table(one.module)))

    @property
    def reads_ids(self) -> bool:
        """Do ranks without the table need ids, too? A layer may look them up by itself."""
        inside = (module for layer in self.layers for module in layer.modules())
        return bool(self.everywhere) or any(getattr(module, "reads_ids", False) for module in inside)

    def is_everywhere(self, tensor: str) -> bool:
        return tensor.startswith(tuple(f"{self.path}.{name}." for name in self.everywhere))

    def specs(self, layout: Sequence[LayerSpec], layer: int) -> Sequence[LayerSpec]:
        """What this layer remembers."""
        return layout[self.edges[layer] : self.edges[layer + 1]]

    def remembers(self, entry: int) -> int:
        """The layer that has this entry of the layout."""
        return bisect_right(self.edges, entry) - 1

    def around(self) -> Iterator[Beside]:
        """The modules beside the layers."""
        for name, child in self.trunk.children().items():
            if name != self.name and isinstance(child, nn.Module):
                yield Beside(self.trunk, name, f"{self.path}.{name}", child)
        yield from self.tables


def chain_of(network: Any, layout: Sequence[LayerSpec], architecture: str) -> LayerChain:
    """CannotCut for networks whose trunk does not say that it calls its layers in turn (`in_turn`): encoders
    whose layers remember nothing, and those that have more between their layers than a stream.
    """
    trunks = [*_trunks(network, "")]
    decoders = [one for one in trunks if not getattr(one[1], "reads_prompts", False)]
    if len(decoders) == 1:
        ((path, trunk),) = decoders
        encoders = [_chain(*one, 0) for one in trunks if one is not decoders[0]]
        own, reader = _chain(path, trunk, len(layout)), encoders[0] if encoders else None
        return replace(own, tables=_tables(network), reader=reader)
    if all(isinstance(spec, Stateless) for spec in layout):
        raise CannotCut(
            f"{architecture} cannot be cut: it is an encoder, which reads texts whole, and small enough for "
            "one machine: more machines serve more users, each with all of it"
        )
    raise CannotCut(
        f"{architecture} cannot be cut: its layers are given more than what the one before them made"
    )


def _trunks(holder: Any, above: str) -> Iterator[tuple[str, Any]]:
    """Those that say that they call their layers in turn, and their paths: the network's, or of both parts of
    one that has an encoder.
    """
    for name, child in holder.children().items():
        if not isinstance(child, nn.Module):
            continue
        if hasattr(child, "in_turn"):
            yield f"{above}{name}", child
        elif not above:
            yield from _trunks(child, f"{name}.")


def _chain(path: str, trunk: Any, memories: int) -> LayerChain:
    """memories: of all layers together."""
    name, everywhere = trunk.in_turn, getattr(trunk, "for_layers", ())
    count = len(trunk[name])
    each = getattr(trunk, "memories", (memories // count,) * count)
    return LayerChain(trunk, path, name, tuple(accumulate(each, initial=0)), everywhere)


def _tables(network: Any) -> tuple[Beside, ...]:
    return tuple(
        Beside(network, name, name, child) for name, child in network.children().items() if is_table(child)
    )


def inside(holder: Any, path: str) -> Any:
    """The module of this path in another one."""
    for name in filter(None, path.split(".")):
        holder = holder[int(name)] if isinstance(holder, list) else holder[name]
    return holder


def is_table(module: Any) -> bool:
    """Does it make vectors of ids?"""
    return type(module) in TABLES
