"""Modules whose answers go on to other ranks, in their places and under their names."""

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx

from runtime.nn.residual.sublayer import defined_together

Next = Callable[[mx.array], mx.array]
NextGiven = Callable[[mx.array, tuple[Any, ...]], mx.array]


def then(module: Any, do: Next, sums: Any = None) -> None:
    """From now on what this module answers is do(what it answered). It stays one of its class, but says no
    longer beside its call what it adds (`runtime.nn.residual.sublayer.defined_together`): nobody may compute
    it in another way. sums: but for who does the same by them (`sums` in `runtime.parts`).
    """
    module.__class__ = _followed(type(module), do, sums)


def then_given(module: Any, do: NextGiven) -> None:
    """As `then`; do is given besides all that the module was."""
    module.__class__ = _followed_given(type(module), do)


@cache
def _followed_given(kind: type, do: NextGiven) -> type:
    def call(self: Any, *given: Any) -> mx.array:
        return do(kind.__call__(self, *given), given)

    return type(kind.__name__, (kind,), {"__call__": call})


@cache
def _followed(kind: type, do: Next, sums: Any) -> type:
    def call(self: Any, *given: Any) -> mx.array:
        return do(kind.__call__(self, *given))

    says = sums is not None and defined_together(kind, "__call__", "parts")

    def parts(self: Any, *given: Any) -> Any:
        said: Any = getattr(kind, "parts")(self, *given) if says else None  # noqa: B009
        return None if said is None else said._replace(sums=sums)

    more: dict[str, Any] = {"parts": parts} if hasattr(kind, "parts") else {}
    return type(kind.__name__, (kind,), {"__call__": call, **more})
