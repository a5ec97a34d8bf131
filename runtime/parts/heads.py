"""How a layer's heads attend: what stays the same from step to step."""

from runtime.parts.rotary import Rotary
from runtime.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """Each layer has its own, known by identity."""

    count: int
    """Query heads."""
    groups: int
    """Key-value heads."""
    size: int
    """Of each."""
    scale: float
    rope: Rotary | None = None
    """Turns queries and keys; None: positions are left out."""
    softcap: float | None = None
    normed_together: bool = False
    """Norms of queries and of keys run over all heads."""
    normed_turned: bool = False
    """Norms of queries and of keys come behind the turn."""
    gated: bool = False
    """With each query comes a gate of its size, whose sigmoid multiplies what the head sees."""
    by_head: bool = False
    """One matrix makes queries, keys and values: those of the first head, then those of the next one."""
