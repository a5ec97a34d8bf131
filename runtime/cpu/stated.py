"""What sublayers consist of, as the table's operations take it: a network says it (`runtime.nn.sublayer`),
and a column computes by it at once, or part by part.

norm, everywhere: an RMS or a layer norm, or None; after: an RMS norm, or None. Modules are those of
`runtime.nn.ops.Operations`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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
