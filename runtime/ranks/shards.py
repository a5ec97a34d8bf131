"""One shard of a stage: parts of its sublayers, whose answers are summed among the ranks that share it.

A sublayer that is split keeps its place and its class; its answer alone becomes the sum, and nobody asks what
it says beside its call (`runtime.ranks.calls`), nor what those say that hold it. What no rule splits stays
whole on every rank, and is computed there from the same numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Shared
from runtime.errors import CannotCut
from runtime.nn.linear import MATRICES
from runtime.ranks.calls import then
from runtime.ranks.pieces import Piece, Range, Shard
from runtime.ranks.rules import rule_for
from runtime.ranks.splits import Split
from runtime.ranks.trunk import LayerChain, inside
from runtime.records import dataclass

Sum = Callable[[mx.array], mx.array]
ROUTERS = ("router", "gate")
"""What every rank has whole, so that all ask the same experts."""
Take = Callable[[mx.array, int, Sequence[Range]], mx.array]
"""Of a tensor the ranges along an axis."""


@dataclass(frozen=True, slots=True)
class Splits:
    """What is split of a network's layers."""

    found: Mapping[str, tuple[Any, Split]]
    """Sublayers and what one rank has of them, by their paths."""
    layout: tuple[LayerSpec, ...]
    """What layers remember then."""
    holders: tuple[Any, ...]
    """Modules in layers that hold a sublayer which is split."""
    whole: tuple[str, ...]
    """What stays whole on every rank, and why: a sentence for each kind."""

    def piece(self, tensor: str) -> tuple[Piece, str] | None:
        """What one rank has of this tensor, and its name in its module; None: all."""
        module, _, leaf = tensor.rpartition(".")
        for path in _upwards(module):
            if path in self.found:
                pieces, below = self.found[path][1].pieces, tensor[len(path) + 1 :]
                if below in pieces:
                    return pieces[below], leaf
                piece = pieces.get(module[len(path) + 1 :])
                return None if piece is None else (piece, leaf)
        return None

    def share(self, tensor: str) -> float:
        """How much of this tensor one rank has."""
        cut = self.piece(tensor)
        return 1.0 if cut is None else cut[0].share(cut[1])


def splits_of(chain: LayerChain, layout: Sequence[LayerSpec], shard: Shard) -> Splits:
    """By the rules, of all layers. CannotCut where nothing can be split."""
    own = _splits_of(chain, layout, shard)
    if chain.reader is not None:
        read = _splits_of(chain.reader, (), shard)
        own = Splits(
            {**read.found, **own.found},
            own.layout,
            (*read.holders, *own.holders),
            (*(f"the encoder's {why}" for why in read.whole), *own.whole),
        )
    if not own.found:
        raise CannotCut("; ".join(("nothing in its layers can be shared by several ranks", *own.whole)))
    return own


def _splits_of(chain: LayerChain, layout: Sequence[LayerSpec], shard: Shard) -> Splits:
    found: dict[str, tuple[Any, Split]] = {}
    holders: dict[int, Any] = {}
    remembered, refused = list(layout), dict[str, list[int]]()
    for place, layer in enumerate(chain.layers):
        said = chain.specs(layout, place)
        its = [layout[one.layer] if isinstance(one, Shared) else one for one in said]
        for path, module, split in _walked(layer, its, shard):
            if isinstance(split, CannotCut):
                refused.setdefault(f"{path} ({type(module).__name__}): {split}", []).append(place)
            else:
                found[chain.prefix(place) + path] = module, split
                holders |= {id(one): one for one in _between(layer, path)}
        for at, (spec, one) in enumerate(zip(said, its, strict=True), chain.edges[place]):
            if not isinstance(spec, Shared):
                remembered[at] = one
            elif one != remembered[spec.layer]:
                raise CannotCut(f"layer {place} reads an earlier one's memory, and is split in another way")
    for lent in chain.lent:
        own = range(*chain.edges[lent.owner : lent.owner + 2])
        for reader in lent.readers:
            for at, one in zip(own, range(*chain.edges[reader : reader + 2]), strict=True):
                remembered[one] = remembered[at] if layout[at] == layout[one] else remembered[one]
    whole = tuple(f"{_in_words(places)}: {why}" for why, places in refused.items())
    return Splits(found, tuple(remembered), tuple(holders.values()), whole)


def become_shard(
    splits: Splits, fitted: Mapping[str, mx.array], add_up: Sum, take: Take, sums: Any = None
) -> dict[str, mx.array]:
    """Make a network's sublayers those of one rank, and give its tensors. sums: as `calls.then` has them."""
    for module, split in splits.found.values():
        for path, value in (*split.changed.items(), *((path, add_up) for path in split.within)):
            holder, _, name = path.rpartition(".")
            setattr(inside(module, holder), name, value)
        for path, piece in split.pieces.items():
            if not piece.has("bias"):
                inside(module, path).pop("bias", None)
        then(module, add_up, sums)
    for holder in splits.holders:
        then(holder, _unchanged)
    mine: dict[str, mx.array] = {}
    for name, array in fitted.items():
        cut = splits.piece(name)
        if cut is None:
            mine[name] = array
        elif cut[0].has(cut[1]):
            mine[name] = take(array, *cut[0].where(cut[1], array.shape))
    return mine


def _walked(
    holder: Any, specs: list[LayerSpec], shard: Shard, above: str = ""
) -> Iterator[tuple[str, Any, Split | CannotCut]]:
    """The outermost sublayers that can be split, and those that cannot and have none inside. specs: what the
    layer remembers, and then what one rank does.
    """
    for name, child in _children(holder):
        path = f"{above}.{name}" if above else name
        split = _split(child, specs, shard)
        if isinstance(split, Split):
            yield path, child, split
            continue
        below = [*_walked(child, specs, shard, path)]
        yield from below
        if below:
            continue
        if split is not None:
            yield path, child, split
        elif not above and name not in ROUTERS and _has_matrices(child):
            yield path, child, CannotCut("it is not known how it is split")


def _children(holder: Any) -> Iterator[tuple[str, Any]]:
    """Those of a list as NAME.PLACE. Under a name that begins with _ stands what another layer has."""
    for name, child in holder.children().items():
        if name.startswith("_"):
            continue
        if isinstance(child, nn.Module):
            yield name, child
        elif isinstance(child, list):
            those = enumerate(child)
            yield from ((f"{name}.{place}", one) for place, one in those if isinstance(one, nn.Module))


def _has_matrices(module: nn.Module) -> bool:
    return any(type(one) in MATRICES for one in module.modules())


def _split(module: Any, specs: list[LayerSpec], shard: Shard) -> Split | CannotCut | None:
    """None: no rule is for it."""
    found = rule_for(module)
    if found is None:
        return None
    kinds, rule = found
    places = [i for i, spec in enumerate(specs) if isinstance(spec, kinds)]
    its = places[: getattr(module, "memories", 1)]
    try:
        split = [rule(module, spec, shard) for spec in [specs[i] for i in its] or [None]]
    except CannotCut as reason:
        return reason
    for i, one in zip(its, split, strict=False):
        specs[i] = specs[i] if one.memory is None else one.memory
    return split[0]


def _between(layer: Any, path: str) -> list[Any]:
    """The modules between a layer and one inside."""
    holders = (inside(layer, above) for above in [*_upwards(path)][1:])
    return [one for one in holders if isinstance(one, nn.Module)]


def _unchanged(x: mx.array) -> mx.array:
    return x


def _upwards(path: str) -> Iterator[str]:
    """A path and all that it lies in."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _in_words(places: Sequence[int]) -> str:
    if len(places) == 1:
        return f"layer {places[0]}"
    return f"{len(places)} layers from {places[0]} to {places[-1]}"
