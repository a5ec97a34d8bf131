"""Blocks that several layers run: transformers' class has a module in each of these layers, over the same
weights, and PEFT trains a pair for each. Here the block is one (`Checkpoint.repeated`), and so has to be what
an adapter says of it: as older versions of transformers, which had one module, let PEFT write it.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from modelkit.errors import UnsupportedSource
from modelkit.source.adapters.value import AdapterSource, OwnRows, Pair
from modelkit.source.tensor import TensorInfo
from runtime.models import Described
from runtime.quoting import shown

_Said = TypeVar("_Said")

_LAYER = re.compile(r"(?:^|(?<=\.))layers\.(\d{1,6})\.", re.ASCII)


def uses_of(described: Described) -> dict[int, tuple[int, ...]]:
    """By the layer that has such a block: all that run it, itself first; of those that several run."""
    if not described.checkpoint.repeated:
        return {}
    found: dict[int, tuple[int, ...]] = {}
    modules: Any = described.network().named_modules()
    for name, module in sorted(modules, key=lambda item: item[0]):
        borrowed = getattr(module, "borrows", None)
        if borrowed is not None:
            lender = borrowed[0]
            found[lender] = (*found.get(lender, (lender,)), int(name.rpartition(".")[2]))
    return {lender: tuple(sorted(layers)) for lender, layers in found.items()}


def layer_of(name: str, described: Described) -> int | None:
    """The layer in whose block of this kind a tensor of a checkpoint lies; None for all others."""
    found = _LAYER.search(name)
    inside = found is not None and name.startswith(f"{described.checkpoint.repeated}.", found.end())
    return int(found[1]) if found is not None and inside else None


def in_layer(name: str, layer: int) -> str:
    return _LAYER.sub(f"layers.{layer}.", name, count=1)


def for_first_use(adapter: AdapterSource, described: Described) -> AdapterSource:
    """The adapter with what it says of such a block said of the first layer that runs it. Raises
    UnsupportedSource where it does not say the same for all of these.
    """
    uses = uses_of(described)
    if not uses:
        return adapter
    pairs, whole = {pair.names[0]: pair for pair in adapter.pairs}, adapter.whole
    for lender, layers in uses.items():
        for name in [name for name in (*pairs, *whole) if layer_of(name, described) in layers]:
            own, said = in_layer(name, lender), pairs if name in pairs else whole
            if not same(said.get(in_layer(own, layer)) for layer in layers):
                _refuse(adapter, own, layers, described)
    borrowed = {layer for layers in uses.values() for layer in layers[1:]}
    kept = {name for name in (*pairs, *whole) if layer_of(name, described) not in borrowed}
    return replace(
        adapter,
        pairs=tuple(pair for name, pair in pairs.items() if name in kept),
        whole={name: tensor for name, tensor in whole.items() if name in kept},
    )


def _refuse(adapter: AdapterSource, name: str, layers: tuple[int, ...], described: Described) -> NoReturn:
    listed, part = ", ".join(map(str, layers)), described.checkpoint.repeated
    raise UnsupportedSource(
        f"{adapter.label}: layers {listed} run one block, and {shown(name)} is not the same in all of them, "
        "which is not computed here",
        hint=f"Train it without {part}, whose matrices these layers share.",
    )


def for_every_use(said: Mapping[str, _Said], described: Described) -> dict[str, _Said]:
    """By names of transformers' class: what is said of such a block, said of all layers that run it."""
    found = dict(said)
    for lender, layers in uses_of(described).items():
        for name, one in said.items():
            if layer_of(name, described) == lender:
                found |= {in_layer(name, layer): one for layer in layers}
    return found


def same(said: Iterable[Pair | TensorInfo | OwnRows | None]) -> bool:
    """Is anything said, and the same of all? Reads the numbers."""
    first, *others = map(_numbers, said)
    return first is not None and all(first == other for other in others)


def _numbers(said: Pair | TensorInfo | OwnRows | None) -> object:
    """All that decides what it does; None where nothing is said."""
    if isinstance(said, OwnRows):
        return said.ids, _numbers(said.values)
    if isinstance(said, Pair):
        return said.scale, [_numbers(tensor) for tensor in said.tensors]
    if said is None:
        return None
    with said.path.open("rb") as file:
        return said.dtype, said.shape, os.pread(file.fileno(), said.nbytes, said.start)
