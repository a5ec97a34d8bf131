"""How much the conversations of each loaded model may take: a pure decision.

What is reserved for them is a usual amount; a long prompt takes more. What no model has been promised is lent
to those in use, in equal parts, so that all of them together stay within the limit whatever they are asked.
"""

from collections.abc import Sequence

from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Need:
    """One model. Bytes."""

    key: int
    reserved_bytes: int
    """What its conversations are promised."""
    taken_bytes: int
    """What they take at this moment."""
    in_use: bool

    @property
    def own_bytes(self) -> int:
        """What is not for others."""
        return max(self.reserved_bytes, self.taken_bytes)


def lend(needs: Sequence[Need], free_bytes: int) -> dict[int, int]:
    """What each may take. free_bytes: what is left once weights, earlier prompts and all that is reserved are
    counted.
    """
    beyond = sum(one.own_bytes - one.reserved_bytes for one in needs)
    using = sum(one.in_use for one in needs)
    part = max(free_bytes - beyond, 0) // max(using, 1)
    return {one.key: one.own_bytes + (part if one.in_use else 0) for one in needs}
