"""How far to guess: the depth that commits most tokens per second, learned while running.

For every depth two things are known or guessed: what a round costs (a running mean of wall time; when the
machine becomes slower or faster at one depth, the others are taken to do so as well), and how
likely the k-th draft is kept when those before it were (a running mean). The expected yield of depth N is 1 +
a1 + a1·a2 + ... + a1···aN tokens for cost(N). Zero is a depth like any other: a draft that does not pay is
parked there and asked again ever more rarely. A probe that is answered well goes on, so a draft that has
become good is soon believed; and drafting pauses now and then, to see afresh what plain decoding costs: the
first costs were taken from a machine that was still cold.

Pure: times come in as numbers, nothing here knows a clock or a model.
"""

import math
from dataclasses import dataclass, field

COST_WEIGHT = 0.3
ACCEPT_WEIGHT = 0.05
OUTLIER = 0.25  # a sample counts as no more than this share above the mean: machines stall
FIRST_COSTS = 3  # a cost begins as the least of so many samples: the first may be a stall
TRUSTED = 10  # samples after which an acceptance is believed
FIRST_PROBE, LAST_PROBE = 4, 512  # rounds between two probes, doubling
FIRST_PAUSE, LAST_PAUSE = 64, 1024  # rounds of drafting between two looks at depth 0, doubling
GAIN = 1.01  # a deeper choice must promise at least this much more


@dataclass(slots=True)
class _Cost:
    """Seconds of a round at one depth. A long sample may be a stall, a short one cannot."""

    seconds: float = math.inf
    samples: int = 0

    def learn(self, seconds: float, *, steady: bool) -> None:
        """steady: rounds at this depth have been going on, so that the cost was right a moment ago."""
        self.samples += 1
        if seconds < self.seconds and not steady:
            self.seconds = max(seconds, 1e-9)
        elif self.samples > FIRST_COSTS:
            self.seconds += COST_WEIGHT * (min(seconds, self.seconds * (1 + OUTLIER)) - self.seconds)


@dataclass(slots=True)
class DepthController:
    """One per drafter and batch size. `limit` is the drafter's own, at least 1.

    choose() names the next round's depth; record() tells what it did. State lives as long as the model is
    loaded.
    """

    limit: int
    _costs: dict[int, _Cost] = field(default_factory=dict[int, _Cost])
    _accepted: list[float] = field(default_factory=list[float])
    _judged: list[int] = field(default_factory=list[int])
    _best: int = 0
    _promise: float | None = None
    _last: int = -1
    _streak: int = 0
    _again: bool = False
    _since_probe: int = 0
    _interval: int = FIRST_PROBE
    _since_plain: int = 0
    _pause: int = FIRST_PAUSE

    def choose(self) -> int:
        """The depth of the next round, 0 to limit. Ask once per round: probes are counted here."""
        depth = self.next_depth()
        if self._promise is not None:
            self._since_probe += 1
            if depth > self._best and not self._again:
                self._since_probe = 0
                self._interval = min(2 * self._interval, LAST_PROBE)
        return depth

    def next_depth(self) -> int:
        """What `choose` would say, without counting."""
        if self._unclear(0):
            return 0
        if self._promise is None:
            return 1
        probing = self._again or self._since_probe + 1 >= self._interval
        return min(self._best + probing, self.limit)

    def record(self, depth: int, accepted: "list[tuple[int, int]]", seconds: float | None) -> None:
        """One round: per row (drafts judged, drafts accepted); its wall time, None if something else ran too.

        A draft is judged if all before it were accepted. Times of a round after another depth are not taken:
        changing shape costs something once.
        """
        for judged, kept in accepted:
            for place in range(min(judged, kept + 1)):
                self._learn(place, place < kept)
        self._streak = self._streak + 1 if self._last == depth else 0
        clean = self._streak > 0
        if clean and seconds is not None:
            self._spend(depth, seconds)
        self._last = depth
        full = sum(kept >= depth for _, kept in accepted)
        # A probe takes two rounds, the second for a clean cost, and more while its last drafts are kept.
        self._again = depth > self._best and (not clean or 2 * full > len(accepted))
        if not self._unclear(0) and (self._promise is not None or not self._unclear(1) or self._trusts(0)):
            self._decide()
            self._look_back(depth, timed=seconds is not None)

    @property
    def depth(self) -> int:
        """The depth that pays best, as far as is known."""
        return self._best

    @property
    def acceptance(self) -> list[float]:
        """Per place: how often a draft is kept when those before it were."""
        return list(self._accepted)

    def promise(self) -> float | None:
        """Expected tokens per second at the depth that is best now; None while costs are unknown."""
        return self._promise

    def _unclear(self, depth: int) -> bool:
        """A clean cost needs rounds at one depth in a row: first plain ones, then with one draft."""
        return depth not in self._costs or self._costs[depth].samples < FIRST_COSTS

    def _trusts(self, place: int) -> bool:
        return place < len(self._judged) and self._judged[place] >= TRUSTED

    def _decide(self) -> None:
        """The best depth, looking one place beyond those whose acceptance is believed."""
        best, most = 0, 1 / self._cost(0)
        chance = total = believed = 1.0
        for place in range(self.limit):
            trusted = self._trusts(place)
            if trusted:
                believed = self._accepted[place]
            chance *= believed
            total += chance
            promise = total / self._cost(place + 1)
            if promise > GAIN * most:
                best, most = place + 1, promise
            if not trusted:
                break
        if best != self._best:
            self._best, self._interval, self._since_probe, self._again = best, FIRST_PROBE, 0, False
        self._promise = most

    def _cost(self, depth: int) -> float:
        """Linear between known depths; beyond the deepest the last slope goes on, unless it falls."""
        if depth in self._costs:
            return self._costs[depth].seconds
        known = sorted(self._costs)
        if len(known) == 1:
            return self._costs[known[0]].seconds
        low = max((at for at in known if at < depth), default=known[0])
        high = min((at for at in known if at > depth), default=known[-1])
        if low >= high:
            low, high = known[-2], known[-1]
        from_low, to_high = self._costs[low].seconds, self._costs[high].seconds
        slope = (to_high - from_low) / (high - low)
        return (
            from_low + slope * (depth - low) if depth < high else to_high + max(slope, 0.0) * (depth - high)
        )

    def _spend(self, depth: int, seconds: float) -> None:
        """The first clean rounds at a depth tell what it costs; those after, how fast the machine is now."""
        cost = self._costs.setdefault(depth, _Cost())
        before, steady = cost.seconds, cost.samples >= FIRST_COSTS and self._streak > FIRST_COSTS
        cost.learn(seconds, steady=steady)
        if steady:
            for other in self._costs.values():
                if other is not cost:
                    other.seconds *= cost.seconds / before

    def _look_back(self, depth: int, *, timed: bool) -> None:
        """After a long run of drafting, forget what plain decoding cost, so that it is measured again."""
        self._since_plain = self._since_plain + 1 if depth else 0
        if timed and self._best and self._since_plain >= self._pause:
            self._costs[0] = _Cost()
            self._pause = min(2 * self._pause, LAST_PAUSE)

    def _learn(self, place: int, kept: bool) -> None:
        while len(self._accepted) <= place:
            self._accepted.append(float(kept))
            self._judged.append(0)
        self._judged[place] += 1
        weight = max(ACCEPT_WEIGHT, 1 / self._judged[place])  # a plain mean at first
        self._accepted[place] += weight * (float(kept) - self._accepted[place])
