"""Where the layers of a network are: what may be cut into stages, and what stands around it."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
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
class Chain:
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
        tables = [f"{self.path}.{name}." for name, module in self.around() if is_table(module)]
        return tensor.startswith(tuple(tables))

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

    def around(self) -> Iterator[tuple[str, Any]]:
        """The modules beside the layers, by their names in the trunk."""
        for name, child in self.trunk.children().items():
            if name != self.name and isinstance(child, nn.Module):
                yield name, child


def chain_of(network: Any, layout: Sequence[LayerSpec], architecture: str) -> Chain:
    """CannotCut for networks whose trunk does not say that it calls its layers in turn (`in_turn`): encoders
    whose layers remember nothing, and those that have more between their layers than a stream.
    """
    for path, trunk in network.children().items():
        name = getattr(trunk, "in_turn", None)
        if name is not None:
            everywhere, count = getattr(trunk, "for_layers", ()), len(trunk[name])
            memories = getattr(trunk, "memories", (len(layout) // count,) * count)
            return Chain(trunk, path, name, tuple(accumulate(memories, initial=0)), everywhere)
    if all(isinstance(spec, Stateless) for spec in layout):
        raise CannotCut(
            f"{architecture} cannot be cut: it is an encoder, which reads texts whole, and small enough for "
            "one machine: more machines serve more users, each with all of it"
        )
    raise CannotCut(
        f"{architecture} cannot be cut: its layers are given more than what the one before them made"
    )


def is_table(module: nn.Module) -> bool:
    """Does it make vectors of ids?"""
    return type(module) in TABLES
