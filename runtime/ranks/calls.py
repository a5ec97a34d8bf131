"""Modules whose answers go on to other ranks, in their places and under their names."""

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx

Next = Callable[[mx.array], mx.array]


def then(module: Any, do: Next) -> None:
    """From now on what this module answers is do(what it answered). It stays one of its class, but says no
    longer beside its call what it adds (`runtime.nn.sublayer.stated_together`): nobody may compute it in
    another way.
    """
    module.__class__ = _followed(type(module), do)


@cache
def _followed(kind: type, do: Next) -> type:
    def call(self: Any, *given: Any) -> mx.array:
        return do(kind.__call__(self, *given))

    return type(kind.__name__, (kind,), {"__call__": call})
