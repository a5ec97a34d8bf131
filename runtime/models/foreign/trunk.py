"""A model class's call cut in two at its trunk, the module that runs all layers.

mlx-lm's classes return logits, and modelkit wants hidden states and logits apart. Another thing is put in the
trunk's place for one call: `Until` computes the trunk and ends the call there, `From` hands out hidden states
that are known. What stands before and after the trunk stays the class's own code: scales, caps, tied heads.
"""

import copy
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn


class Reached(Exception):
    """The trunk is done, and `hidden` is what it gave."""

    def __init__(self, hidden: Any) -> None:
        super().__init__("the trunk is done")
        self.hidden = hidden


class StandIn:
    """Looks like the trunk in all but its call: a head may be tied to its embedding."""

    trunk: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trunk, name)

    def __getitem__(self, name: str) -> Any:
        return self.trunk[name]


class Until(StandIn):
    """Raises Reached."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise Reached(self.trunk(*args, **kwargs))


class From(StandIn):
    """Gives `hidden`, whatever it is asked."""

    def __init__(self, hidden: mx.array) -> None:
        self._hidden = hidden

    def __call__(self, *_: Any, **__: Any) -> mx.array:
        return self._hidden


def put_in(model: nn.Module, path: Sequence[str], stand_in: StandIn) -> nn.Module:
    """A copy of `model` with `stand_in` at `path`; all other modules are shared."""
    view = copy.copy(model)
    name, *rest = path
    # An attribute comes before an item, and a module that is ready to run, or dressed, has both.
    inner = vars(model).get(name, model[name])
    if not rest:
        stand_in.trunk = inner
    vars(view)[name] = put_in(inner, rest, stand_in) if rest else stand_in
    return view
