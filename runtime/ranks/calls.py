"""Modules whose answers go on to other ranks, in their places and under their names."""

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx

Next = Callable[[mx.array], mx.array]
NextGiven = Callable[[mx.array, tuple[Any, ...]], mx.array]


def then(module: Any, do: Next) -> None:
    """From now on what this module answers is do(what it answered). It stays one of its class, but says no
    longer beside its call what it adds (`runtime.nn.sublayer.stated_together`): nobody may compute it in
    another way.
    """
    module.__class__ = _followed(type(module), do)


def then_given(module: Any, do: NextGiven) -> None:
    """As `then`; do is given besides what the module was, behind its first argument."""
    module.__class__ = _followed_given(type(module), do)


@cache
def _followed_given(kind: type, do: NextGiven) -> type:
    def call(self: Any, x: mx.array, *given: Any) -> mx.array:
        return do(kind.__call__(self, x, *given), given)

    return type(kind.__name__, (kind,), {"__call__": call})


@cache
def _followed(kind: type, do: Next) -> type:
    def call(self: Any, *given: Any) -> mx.array:
        return do(kind.__call__(self, *given))

    return type(kind.__name__, (kind,), {"__call__": call})
