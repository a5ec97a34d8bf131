"""A class's matrices and tables, asked so that they see the step: what adapters need of a class that calls
its layers itself.

For one call, `Asked` stands in the place of each module that some adapter changes, in copies of the modules
on the way to it; all others are shared. Whoever reads a weight itself, or brings tokens in another form than
[rows, ...], is refused by name: a row's adapter needs the row. `probe.check_adapters` asks before a package
is written.
"""

import copy
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.errors import NotSupported
from runtime.nn.linear import embed, linear, tied
from runtime.step import Step

Path = tuple[str, ...]
_NUMBERS = ("weight", "scales", "biases", "bias")


class Asked:
    """Looks like the module in all but its call and its numbers."""

    def __init__(self, name: str, module: Any, step: Step) -> None:
        self.name = name
        self.times = 0
        """How often it was asked."""
        self._module = module
        self._step = step

    def __call__(self, x: mx.array) -> mx.array:
        ids = mx.issubdtype(x.dtype, mx.integer)
        self._check(x, 2 if ids else 3)
        return embed(self._module, x, self._step) if ids else linear(self._module, x, self._step)

    def as_linear(self, x: mx.array) -> mx.array:
        self._check(x, 3)
        return tied(self._module, x, self._step)

    def __getattr__(self, name: str) -> Any:
        self._refuse_numbers(name)
        return getattr(self._module, name)

    def __getitem__(self, name: str) -> Any:
        self._refuse_numbers(name)
        return self._module[name]

    def __contains__(self, name: object) -> bool:
        return name in self._module

    def _check(self, x: mx.array, dimensions: int) -> None:
        if x.ndim < dimensions or x.shape[0] != len(self._step.starts):
            raise NotSupported(f"mlx-lm's class asks {self.name} for tokens of all rows at once")
        self.times += 1

    def _refuse_numbers(self, name: str) -> None:
        if name in _NUMBERS:
            raise NotSupported(f"mlx-lm's class reads the {name} of {self.name} itself")


def stand_ins(network: nn.Module, step: Step) -> dict[Path, Asked]:
    """By where they stand. {} where the step has no adapters."""
    if step.adapters is None:
        return {}
    deck = step.adapters.deck
    found: dict[Path, Asked] = {}
    for name, module in network.named_modules():
        if deck.get(module) is not None or deck.get(module, head=True) is not None:
            found[tuple(name.split("."))] = Asked(name, module, step)
    return found


def dressed(holder: Any, places: Mapping[Path, Asked]) -> Any:
    """A copy of a module, or of a list or dict of them, with these in their places inside."""
    inside: dict[str, dict[Path, Asked]] = {}
    own: dict[str, Any] = {}
    for (name, *rest), asked in places.items():
        if rest:
            inside.setdefault(name, {})[tuple(rest)] = asked
        else:
            own[name] = asked
    for name, its in inside.items():
        own[name] = dressed(holder[int(name)] if isinstance(holder, list) else holder[name], its)
    view: Any = copy.copy(holder)
    if isinstance(view, nn.Module):
        vars(view).update(own)  # an attribute comes before an item
    else:
        for name, child in own.items():
            place: Any = int(name) if isinstance(holder, list) else name
            view[place] = child
    return view
