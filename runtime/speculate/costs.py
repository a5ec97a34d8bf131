"""What a round costs, by its depth: running means of wall time.

A sample counts only when the round before had the same depth: changing shape costs something once, and a
step that was dispatched ahead shifts its time into the next. When the machine becomes slower or faster at one
depth, the others are taken to do so as well. Costs remembered from an earlier run tell how depths compare,
not how fast the machine is today: the first sample at any depth replaces its own and moves the others along.

Pure: times come in as numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

COST_WEIGHT = 0.3
OUTLIER = 0.25  # a sample counts as no more than this share above the mean: machines stall
ASSUMED = 0.02  # share of a plain round that a draft costs, until one was timed
FIRST_COSTS = 3  # a cost begins as the least of so many samples: the first may be a stall


@dataclass(slots=True)
class _Cost:
    """Seconds of a round at one depth. A long sample may be a stall, a short one cannot."""

    seconds: float = math.inf
    samples: int = 0
    remembered: bool = False

    def learn(self, seconds: float, *, steady: bool) -> None:
        """steady: rounds at this depth have been going on, so that the cost was right a moment ago."""
        self.samples += 1
        if self.remembered or (seconds < self.seconds and not steady):
            self.seconds, self.remembered = max(seconds, 1e-9), False
        elif self.samples > FIRST_COSTS:
            self.seconds += COST_WEIGHT * (min(seconds, self.seconds * (1 + OUTLIER)) - self.seconds)


@dataclass(slots=True)
class Costs:
    """Of one drafter's rounds in batches of one size; plain rounds are depth 0."""

    _known: dict[int, _Cost] = field(default_factory=dict[int, _Cost])
    _last: int = -1
    _streak: int = 0

    def record(self, depth: int, seconds: float | None) -> bool:
        """One round; None for a time that says nothing. Was it clean: the second or a later one at its
        depth?
        """
        self._streak = self._streak + 1 if self._last == depth else 0
        self._last = depth
        if self._streak and seconds is not None:
            self._spend(depth, seconds)
        return self._streak > 0

    def interrupt(self) -> None:
        """Somebody else's round came between: the next one is not clean."""
        self._last = -1

    def of(self, depth: int) -> float:
        """Seconds, linear between known depths; beyond the deepest the last slope goes on, unless it falls.

        Something must be known.
        """
        if depth in self._known:
            return self._known[depth].seconds
        known = sorted(self._known)
        if len(known) == 1:
            return self._known[known[0]].seconds * (1 + ASSUMED * (depth - known[0]))
        low = max((at for at in known if at < depth), default=known[0])
        high = min((at for at in known if at > depth), default=known[-1])
        if low >= high:
            low, high = known[-2], known[-1]
        from_low, to_high = self._known[low].seconds, self._known[high].seconds
        slope = (to_high - from_low) / (high - low)
        return (
            from_low + slope * (depth - low) if depth < high else to_high + max(slope, 0.0) * (depth - high)
        )

    def unclear(self, depth: int) -> bool:
        """Would a few more rounds at this depth tell more than is known?"""
        cost = self._known.get(depth)
        return cost is None or (cost.samples < FIRST_COSTS and not cost.remembered)

    @property
    def drafting_known(self) -> bool:
        """Has any round with drafts been timed?"""
        return any(self._known)

    def forget(self, depth: int) -> None:
        """It is measured afresh."""
        self._known[depth] = _Cost()

    def remember(self, costs: Mapping[int, float]) -> None:
        """Take over what an earlier run measured."""
        self._known = {depth: _Cost(seconds, remembered=True) for depth, seconds in costs.items()}

    def learned(self) -> dict[int, float]:
        """Depth -> seconds of all that was ever timed."""
        return {depth: cost.seconds for depth, cost in self._known.items() if math.isfinite(cost.seconds)}

    def _spend(self, depth: int, seconds: float) -> None:
        """The first clean rounds at a depth tell what it costs; those after, how fast the machine is now."""
        cost = self._known.setdefault(depth, _Cost())
        before, steady = cost.seconds, cost.samples >= FIRST_COSTS and self._streak > FIRST_COSTS
        cost.learn(seconds, steady=steady)
        if not math.isfinite(before):
            return
        for other in self._known.values():
            if other is not cost and (steady or other.remembered):
                other.seconds *= cost.seconds / before
