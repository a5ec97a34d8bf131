"""What sublayers consist of, as the table's operations take it: a network says it (`runtime.nn.sublayer`),
and a column computes by it at once, or part by part.

norm, everywhere: an RMS or a layer norm, or None; after: an RMS norm, or None. Modules are those of
`runtime.nn.ops.Operations`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import mlx.core as mx

from runtime.cache.protocol import ScanFunction

if TYPE_CHECKING:
    from runtime.nn.heads import Heads


class Attends(NamedTuple):
    """after(close(what heads see)), whose queries, keys and values are what the opening modules make of
    norm(x).
    """

    heads: "Heads"
    norm: Any
    opening: Sequence[Any]
    """One module each for queries, keys and values, or one for all."""
    head_norms: tuple[Any, Any] | None
    """Of the heads of queries and of keys."""
    close: Any
    after: Any


class Folds(NamedTuple):
    """after(close(what a fold over tokens answers to norm(x), under a gate))."""

    norm: Any
    opening: Sequence[Any]
    """What is mixed, the answer's gate, and the rule's gates (decays and strengths, or step sizes): one
    module each, or one for all, the answer's gate first.
    """
    conv: Any
    """What is mixed passes it, and then silu: as `runtime.nn.ops.Operations.conv` has it."""
    kind: Literal["delta", "ssd"]
    """The rule, as the operation of that name has it; and with it the next two."""
    rule: Any
    sizes: Any
    gated_norm: Any
    """As `runtime.nn.ops.Operations.gated_norm` has it; None: the answer times silu of its gate."""
    close: Any
    after: Any
    scan: ScanFunction
    """The convolution and the rule, for a memory with the states of both."""
    scanned: Callable[[Sequence[mx.array]], Sequence[mx.array]]
    """From what the opening modules give to what `scan` takes."""


class Feeds(NamedTuple):
    """after(down(inner)): inner is act(gate) · up or, of one part, act(part)."""

    norm: Any
    opening: Sequence[Any]
    """What they make of norm(x) are the parts; or the halves of what one of them does."""
    halves: bool
    activation: str
    """Its name in `runtime.nn.activation.NAMES`."""
    down: Any
    after: Any


class Stacks(NamedTuple):
    """Experts, of each of which the answer is down(inner), with inner as in `Feeds`; or by `clip`."""

    opening: Sequence[Any]
    """Stacks of matrices: of [gate, up], or one."""
    activation: str
    clip: tuple[float, float] | None
    """Limit and slope, where the gate is `clipped_gate`."""
    down: Any


class Asks(NamedTuple):
    """after(the answers of experts to norm(x), weighed as the router says)."""

    norm: Any
    router: Any
    """A linear layer with one output for each expert."""
    gates: str
    """This and the next two: as `runtime.nn.ops.Operations.route` has them."""
    each: int
    """Experts that a row asks."""
    normalize: bool
    """Their weights are brought to a sum of one."""
    experts: Stacks
    after: Any
