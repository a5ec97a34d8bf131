"""How far to guess: the depth that commits most tokens per second, learned while running.

What a round costs is known from `Costs`; how likely the k-th draft is kept when those before it were is a
running mean, which begins at what the place before it reached. The expected yield of depth N is 1 + a1 +
a1·a2 + ... + a1···aN tokens for cost(N). Depths up to twice the deepest one tried are considered. Zero is a
depth like any other: a draft that does not pay is parked there and asked again ever more rarely. A probe that
is answered well goes on, so a draft that has become good is soon believed; and drafting pauses now and then,
to see afresh what plain decoding costs: the first costs were taken from a machine that was still cold.

Pure: times come in as numbers, nothing here knows a clock or a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.speculate.costs import Costs
from runtime.speculate.learned import Accepted

ACCEPT_WEIGHT = 0.03
FIRST_GUESS, GUESS_WEIGHT = 0.5, 2  # how likely the first draft is kept, and how many samples that is worth
FIRST_PROBE, LAST_PROBE = 16, 512  # rounds between two probes, doubling
REMEMBERED_PROBE = 64  # the first such interval of a draft that did not pay in an earlier run
FIRST_PAUSE, LAST_PAUSE = 64, 1024  # rounds of drafting between two looks at depth 0, doubling
GAIN = 1.01  # a deeper choice must promise at least this much more
ENOUGH = 4  # drafts to judge where none could be timed
CONVINCING = 0.8  # acceptance at which a probe has nothing more to learn


@dataclass(slots=True)
class DepthController:
    """One per kind of guess and batch size. `limit` is the drafter's own, at least 1.

    choose() names the next round's depth; record() tells what it did. `costs` may be shared by controllers
    whose rounds cost the same; then whoever shares them records costs once and calls judge() instead.
    """

    limit: int
    costs: Costs = field(default_factory=Costs)
    _accepted: list[float] = field(default_factory=list[float])
    _judged: list[int] = field(default_factory=list[int])
    _best: int = 0
    _promise: float | None = None
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
        if self.costs.unclear(0):
            return 0
        if self._promise is None:
            return 1
        probing = self._again or self._since_probe + 1 >= self._interval
        return min(self._best + probing, self.limit)

    def record(self, depth: int, judged: Sequence[tuple[int, int]], seconds: float | None) -> None:
        """One round: per row (drafts judged, drafts accepted), and its wall time, None if something else ran
        too.
        """
        self.judge(depth, judged, clean=self.costs.record(depth, seconds), timed=seconds is not None)

    def judge(self, depth: int, judged: Sequence[tuple[int, int]], *, clean: bool, timed: bool) -> None:
        """What `record` does but for the costs. A draft is judged if all before it were accepted."""
        for count, kept in judged:
            for place in range(min(count, kept + 1)):
                self._learn(place, place < kept)
        full = sum(kept >= depth for _, kept in judged)
        kept_most = 2 * full > len(judged)
        # A probe goes on until its depth has a clean cost, if that may matter, and while drafts turn out
        # better than believed.
        timing = not clean and (kept_most or self.costs.unclear(depth))
        self._again = depth > self._best and (
            timing or (kept_most and self._accepted[depth - 1] < CONVINCING)
        )
        settling = not clean and depth == self._best > 0  # one round more, and its cost is known
        if self._ready and not settling:
            self._decide()
            self._look_back(depth, timed=timed)

    def saw(self, kept: bool) -> None:
        """A first draft that was not made would have been kept, or not."""
        self._learn(0, kept)

    @property
    def depth(self) -> int:
        """The depth that pays best, as far as is known."""
        return self._best

    @property
    def acceptance(self) -> list[float]:
        """Per place: how often a draft is kept when those before it were."""
        return list(self._accepted)

    @property
    def probing(self) -> bool:
        """Is the next round's depth one that is not believed to pay?"""
        return self.next_depth() > self._best

    def promise(self) -> float | None:
        """Expected tokens per second at the depth that is best now; None while costs are unknown."""
        return self._promise

    def learned(self) -> Accepted:
        return tuple(zip(self._accepted, self._judged, strict=True))

    def remember(self, accepted: Accepted) -> None:
        """Start from what an earlier run learned; `costs` remember already."""
        self._accepted = [share for share, _ in accepted[: self.limit]]
        self._judged = [count for _, count in accepted[: self.limit]]
        if self._ready and self._judged:
            self._decide()
            self._interval = FIRST_PROBE if self._best else REMEMBERED_PROBE

    @property
    def _ready(self) -> bool:
        """First plain rounds are timed, then rounds with drafts; where none can be, some are judged."""
        tried = self.costs.drafting_known or sum(self._judged[:1]) >= ENOUGH
        return not self.costs.unclear(0) and (self._promise is not None or tried)

    def _decide(self) -> None:
        """The best depth among those up to twice the deepest one tried."""
        best, most = 0, 1 / self.costs.of(0)
        chance = total = 1.0
        believed = FIRST_GUESS
        for place in range(min(max(2 * len(self._judged), 1), self.limit)):
            believed = self._believed(place, believed)
            chance *= believed
            total += chance
            promise = total / self.costs.of(place + 1)
            if promise > GAIN * most:
                best, most = place + 1, promise
        if best != self._best:
            self._best, self._interval, self._since_probe, self._again = best, FIRST_PROBE, 0, False
        self._promise = most

    def _believed(self, place: int, before: float) -> float:
        """How likely a draft there is kept; few judged ones leave it near what the place before has."""
        if place >= len(self._judged):
            return before
        count = self._judged[place]
        return (self._accepted[place] * count + before * GUESS_WEIGHT) / (count + GUESS_WEIGHT)

    def _look_back(self, depth: int, *, timed: bool) -> None:
        """After a long run of drafting, forget what plain decoding cost, so that it is measured again."""
        self._since_plain = self._since_plain + 1 if depth else 0
        if timed and self._best and self._since_plain >= self._pause:
            self.costs.forget(0)
            self._since_plain = 0
            self._pause = min(2 * self._pause, LAST_PAUSE)

    def _learn(self, place: int, kept: bool) -> None:
        if place == len(self._judged):
            self._accepted.append(float(kept))
            self._judged.append(0)
        self._judged[place] += 1
        weight = max(ACCEPT_WEIGHT, 1 / self._judged[place])  # a plain mean at first
        self._accepted[place] += weight * (float(kept) - self._accepted[place])
