"""Hidden states between the layers of a trunk, for those who ask: block drafts read several of them.

A trunk that inherits from `Taps` says in its loop what leaves each layer. Where nobody has asked, that costs
one look into an empty set; where somebody has, the state is kept in the step's memo, as long as the step.

The state "after layer i" is the residual stream that layer i hands on; the last layer's after the final norm
(transformers: `hidden_states[i + 1]`, which block drafts are trained on).
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from runtime.nn.module import Module
from runtime.step import Step


class Taps(Module):
    """The part of a trunk that remembers what it was asked for."""

    is_even: bool = True
    """What leaves its layers is as wide as what leaves the trunk."""

    def __init__(self) -> None:
        super().__init__()
        self._wanted: frozenset[int] = frozenset()

    def tap(self, layers: Sequence[int]) -> None:
        """From now on keep what leaves these layers, for `tapped`."""
        self._wanted |= frozenset(layers)

    @property
    def depth(self) -> int:
        """Layers that can be tapped. What they remember may be several entries of the layout for each."""
        return len(self["layers"])

    @property
    def is_tapped(self) -> bool:
        return bool(self._wanted)

    @property
    def wanted(self) -> frozenset[int]:
        """What is kept leaves these layers."""
        return self._wanted

    def note(self, layer: int, state: mx.array, step: Step) -> None:
        """state [B, L, D] leaves this layer, which is one of `_wanted`."""
        step.memo(("after layer", layer), lambda: state)

    def tapped(self, step: Step, layers: Sequence[int]) -> mx.array:
        """[B, L, n * D]: what left these tapped layers side by side, of a step that was read."""
        return mx.concatenate([step.memo(("after layer", i), _unread) for i in layers], axis=-1)


def _unread() -> mx.array:
    raise AssertionError("a step's states are there after the trunk has read it")


def taps_of(network: Any) -> Taps | None:
    """The trunk of this network that can be tapped; None for families that do not say what leaves a layer, or
    where that has another width than drafts are made for.
    """
    trunk = getattr(network, "model", None)
    return trunk if isinstance(trunk, Taps) and trunk.is_even else None
