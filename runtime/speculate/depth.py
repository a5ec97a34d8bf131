"""How far to guess: the depth that commits most tokens per second, learned while running.

For every depth two things are known or guessed: what a round costs (a running mean of wall time), and how
likely the k-th draft is kept when those before it were (a running mean). The expected yield of depth N is 1 +
a1 + a1·a2 + ... + a1···aN tokens for cost(N). Zero is a depth like any other: a draft that does not pay is
parked there and asked again ever more rarely.

Pure: times come in as numbers, nothing here knows a clock or a model.
"""

from dataclasses import dataclass, field

COST_WEIGHT = 0.3
ACCEPT_WEIGHT = 0.1
OUTLIER = 0.25  # a single sample moves a cost by no more than this share: machines stall
TRUSTED = 10  # samples after which an acceptance is believed
FIRST_PROBE, LAST_PROBE = 4, 512
GAIN = 1.01  # a deeper choice must promise at least this much more


@dataclass(slots=True)
class DepthController:
    """One per drafter and batch size. `limit` is the drafter's own.

    choose() names the next round's depth; record() tells what it did. State lives as long as the model is
    loaded.
    """

    limit: int
    _costs: dict[int, float] = field(default_factory=dict[int, float])
    _accepted: list[float] = field(default_factory=list[float])
    _judged: list[int] = field(default_factory=list[int])
    _selected: int = 0
    _last: int = -1
    _since_probe: int = 0
    _interval: int = FIRST_PROBE

    def choose(self) -> int:
        """The depth of the next round, 0 to limit. Ask once per round: probes are counted here."""
        depth = self.next_depth()
        if len(self._costs) >= 2:
            self._since_probe += 1
            if depth != self._selected:
                self._since_probe = 0
                self._interval = min(2 * self._interval, LAST_PROBE)
        return depth

    def next_depth(self) -> int:
        """What `choose` would say, without counting."""
        if len(self._costs) < 2:
            return self._explore()
        best = self._best()
        if best != self._selected:
            self._selected, self._interval, self._since_probe = best, FIRST_PROBE, 0
        probing = self._since_probe + 1 >= self._interval and best < self.limit
        return best + probing

    def record(self, depth: int, accepted: "list[tuple[int, int]]", seconds: float | None) -> None:
        """One round: per row (drafts judged, drafts accepted); its wall time, None if something else ran too.

        A draft is judged if all before it were accepted. Times of a round after another depth are not taken:
        changing shape costs something once.
        """
        for judged, kept in accepted:
            for place in range(min(judged, kept + 1)):
                self._learn(place, place < kept)
        if seconds is not None and self._last == depth:
            old = self._costs.get(depth)
            bound = seconds if old is None else min(max(seconds, old * (1 - OUTLIER)), old * (1 + OUTLIER))
            self._costs[depth] = bound if old is None else old + COST_WEIGHT * (bound - old)
        self._last = depth

    def promise(self) -> float | None:
        """Expected tokens per second at the depth that is best now; None while costs are unknown."""
        if len(self._costs) < 2:
            return None
        best = self._best()
        return self._yield(best) / self._cost(best)

    @property
    def acceptance(self) -> list[float]:
        """Per place: how often a draft is kept when those before it were."""
        return list(self._accepted)

    def _explore(self) -> int:
        """Two rounds at one depth give its first clean cost: first plain ones, then one draft."""
        return 0 if 0 not in self._costs else min(1, self.limit)

    def _best(self) -> int:
        if len(self._costs) < 2:
            return 0
        best = 0
        for depth in range(1, min(self._frontier() + 1, self.limit) + 1):
            if self._yield(depth) / self._cost(depth) > GAIN * self._yield(best) / self._cost(best):
                best = depth
        return best

    def _frontier(self) -> int:
        """The deepest place up to which every acceptance is believed."""
        frontier = 0
        while frontier < len(self._judged) and self._judged[frontier] >= TRUSTED:
            frontier += 1
        return frontier

    def _yield(self, depth: int) -> float:
        total = chance = 1.0
        for place in range(depth):
            chance *= self._acceptance(place)
            total += chance
        return total

    def _acceptance(self, place: int) -> float:
        """The mean at this place; where it is not believed yet, that of the deepest place that is."""
        trusted = [at for at in range(min(place + 1, len(self._judged))) if self._judged[at] >= TRUSTED]
        return self._accepted[trusted[-1]] if trusted else 1.0

    def _cost(self, depth: int) -> float:
        """Linear between known depths; beyond the deepest, the slope of the last two goes on."""
        known = sorted(self._costs)
        if depth in self._costs:
            return self._costs[depth]
        low = max((at for at in known if at < depth), default=known[0])
        high = min((at for at in known if at > depth), default=known[-1])
        if low >= high:
            low, high = known[-2], known[-1]
        slope = (self._costs[high] - self._costs[low]) / (high - low)
        return max(self._costs[low] + slope * (depth - low), 1e-9)

    def _learn(self, place: int, kept: bool) -> None:
        while len(self._accepted) <= place:
            self._accepted.append(float(kept))
            self._judged.append(0)
        self._judged[place] += 1
        weight = max(ACCEPT_WEIGHT, 1 / self._judged[place])  # a plain mean at first
        self._accepted[place] += weight * (float(kept) - self._accepted[place])
