"""Recurrences over tokens as operations compute them."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import mlx.core as mx

from runtime.cache.protocol import ScanFunction


class RecurrentParts(NamedTuple):
    """after(close(gated(a recurrence over tokens, of norm(x))))."""

    norm: Any
    opening: Sequence[Any]
    """What makes the recurrence's inputs, the gate of its output, and the gates of its rule (decays and
    strengths, or step sizes): a module each, or one for all, the output's gate first (selective: the inputs
    first).
    """
    conv: Any
    """The convolution that inputs pass, and silu after it (rg_lru: without silu): see
    `Operations.conv`.
    """
    kind: Literal["delta", "ssd", "selective", "rg_lru", "conv"]
    """The rule: the operation of that name (selective: `selective_scan`). conv: no rule, but a gated
    convolution (`gated_conv`) of what one module gives.
    """
    rule: Any
    """The module with the rule's parameters."""
    sizes: Any
    """Those of delta and ssd; selective: what makes its gates, a `SelectiveParts`."""
    gated_norm: Any
    """See `Operations.gated_norm`; None: the output times `activation` of its gate."""
    close: Any
    after: Any
    scan: ScanFunction
    """The convolution and the rule, for a memory with the states of both. selective, rg_lru: takes the step
    first.
    """
    scanned: Callable[[Sequence[mx.array]], Sequence[mx.array]]
    """From what the opening modules give, times `scales`, to what `scan` takes."""
    scales: mx.array | None = None
    """Where one module opens: a factor for each of its outputs."""
    norm_scale: float = 1.0
    share: float = 1.0
    beside: bool = False
    sums: Any = None
    activation: str = "silu"
    """Its name in `runtime.nn.activation.NAMES`."""
    widen: Sequence[Any] = ()
    """For each of several opening modules, a second module that what it gives passes; or None."""

    @property
    def by_step(self) -> bool:
        """Does `scan` take the step first?"""
        return self.kind in ("selective", "rg_lru")

    @property
    def by_position(self) -> bool:
        """Does the rule depend on the positions of tokens?"""
        return self.kind == "rg_lru"


class SelectiveParts(NamedTuple):
    """How step sizes, and inputs and outputs of the state, are made of what passed the convolution
    (Mamba).
    """

    open: Any
    """To a low-rank vector of step sizes, inputs and outputs."""
    norms: Sequence[Any]
    """Of these three; None for no norm."""
    widen: Any
    """From the low-rank vector to step sizes."""
