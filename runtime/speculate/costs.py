"""What a round with drafts costs beside a plain one, told apart from how fast the machine is at the moment.

Single times say little: other programs come and go, clocks rise and fall, and the difference between two
depths is often smaller than that. So one estimate holds both what all rounds share, the logarithm of a plain
round's seconds now, and what belongs to each depth, the logarithm of its cost in plain rounds. Every time
observes the sum of the two. The first may wander from round to round, the second hardly does; so depths are
in effect compared with those measured just before and after, and a slower machine moves all of them alike. It
is a Kalman filter, with times far from what was expected counted as if they were nearer (Huber). Noise comes
in bursts, which it takes for costs; so while nothing is drafted, what was timed in noise is doubted again.

It begins from the shapes of both models: leaving the pipeline of plain decoding costs something once, each
drafted token a share of a plain round. How wrong that may be is part of the estimate, so a few rounds at one
depth correct the others too.

Pure: times come in as numbers, nothing here knows a clock or a model. Matrices have some twenty rows: lists
are as quick as an array library, whose import takes longer than a first token. The constants were set on
simulated machines (tests/runtime/speculate/test_learner.py) and tried with `benchmarks/example_pair.py`.
"""

import math
from collections.abc import Mapping
from itertools import pairwise

from runtime.records import dataclass

LADDER = (1, 2, 3, 4, 6, 8, 12, 16)
"""Depths that are ever chosen: few, so that each is measured often."""

# What shapes cannot tell, in plain rounds, and how wrong it may be: a factor of e to plus or minus the doubt.
PIPELINE, PIPELINE_DOUBT = 0.4, 0.8  # of a round without work dispatched ahead
VERIFY, SLOPE_DOUBT = 0.06, 0.7  # of verifying one drafted token; the doubt is of making and verifying it
OWN_DOUBT = 0.1  # how far one depth may lie from the line through all
LAYER_BYTES = 1 << 20  # of weights, which take as long to read as a layer takes however small it is
LEAST = 0.01  # of a drafted token at the least, whatever was measured

# How much changes from one round to the next, as standard deviations of logarithms.
WANDER = 0.03  # the machine's speed
AGE = 0.003  # what a depth costs: contexts grow
UNSEEN, MOST_UNSEEN = 0.1, 0.3  # what depths cost, in a plain round: of the noise they were timed in; in all
NOISE, LEAST_NOISE, MOST_NOISE = 0.15, 0.03, 0.6  # one time: at first, and the bounds of what is learned
NOISE_WEIGHT = 0.05
REMEMBERED = 0.15  # a cost that an earlier run measured
FAR = 2.0  # deviations from which on a time counts no further, and ever less: machines stall
RUN = 3  # far times on one side in a row, after which the speed has changed, or costs were wrong
JUMP, COST_JUMP = 0.5, 0.25  # by so much

TOGETHER = 5  # plain rounds in a row that make one time: the middle one of pairs, as what delays a round
# shortens the next, which was dispatched meanwhile
FIRST_PLAIN = 3  # plain rounds that are timed before anything is tried; the middle one counts
STEADY = 16  # behind so many plain rounds in a row, only each 16th is looked at: nothing changes

Place = tuple[str, int]
"""A drafter's name and a depth of the ladder."""
_UNKNOWN: Place = ("", -1)  # what went before says nothing: other work ran, or nothing at all


@dataclass(frozen=True, slots=True)
class DrafterTraits:
    """What is known of a drafter beforehand."""

    token_cost: float
    """Of making one drafted token, in plain rounds, by the shapes of both models; without verifying it."""
    limit: int
    """The largest depth."""
    certain: bool = False
    """Of its guesses of grade g, the first 2^(g-1) drafts come true."""
    auditions: bool = False
    """It can be auditioned beside plain decoding."""


class Costs:
    """In batches of one size."""

    def __init__(self, kinds: Mapping[str, DrafterTraits]) -> None:
        self._at: dict[Place, int] = {}
        for name, kind in kinds.items():
            for depth in depths(kind.limit):
                self._at[name, depth] = 1 + len(self._at)
        self._mean, self._covariance = _prior(self._at, kinds)
        self._by_shape = tuple(self._mean)
        self._drift = [WANDER**2] + [AGE**2] * len(self._at)
        self._noise = NOISE**2
        self._noise_then = self._noise  # of the last drafted round that was timed
        self._unseen = self._most_unseen = 0.0  # variance of all costs since then; what it may grow to
        self._seen: set[int] = set()
        self._far = 0  # times in a row that were far off, below 0 where they were short
        self._before: Place | None = _UNKNOWN
        self._alone: tuple[int, float] | None = None  # a drafted round behind a plain one
        self._first: list[float] = []  # the first plain times
        self._streak = 0  # plain rounds in a row
        self._together: list[float] = []  # their times that were not looked at yet
        self._passed_over_s = 0.0

    def passed_over(self) -> float:
        """Plain rounds that were spent, since this was last asked, on what happens once and so is no part of
        any depth's cost: the first round at each is longer, as kernels, buffers and views are made for it.
        """
        passed_over, self._passed_over_s = self._passed_over_s, 0.0
        return passed_over / self.plain_s

    def record(self, name: str | None, depth: int, seconds: float | None) -> None:
        """One round: by whom, None for a plain one; seconds are None where something else ran too.

        A plain round is dispatched before the one in front of it is read, a drafted one is not. So the first
        drafted round also waits for the plain one in front, and the first plain one behind it for nothing:
        the two count together.
        """
        here: Place | None = None if name is None else (name, depth)
        before, alone, self._before, self._alone = self._before, self._alone, here, None
        self._streak = self._streak + 1 if here is None else 0
        if here is not None:
            self._look()
        if seconds is None:
            self._before = _UNKNOWN if here is None else here
        elif here is None:
            if before is None and (self._streak < STEADY or self._streak % STEADY == 0):
                self._together.append(seconds)
                if not self._seen or len(self._together) == TOGETHER or self._streak >= STEADY:
                    self._look()
            elif before is not None and alone is not None:
                self._observe(alone[0], alone[1] + seconds - self.plain_s)
        elif before is None:
            self._alone = (self._at[here], seconds) if here in self._at else None
            if self._alone is not None and self._alone[0] not in self._seen:
                self._pass_over(self._alone[0], seconds - self.plain_s)
        elif before != _UNKNOWN and here in self._at:
            self._observe(self._at[here], seconds)

    def paused(self) -> None:
        """Plain rounds passed whose time comes with that of the next: look at that one."""
        self._streak = STEADY - 1

    def unseen(self, rounds: int) -> None:
        """So many plain rounds passed that could have had drafts. What was timed before them is doubted the
        more, the noisier it was: else a few bad moments would settle that drafts are too dear.
        """
        self._unseen = min(self._unseen + rounds * UNSEEN**2 * self._noise_then, self._most_unseen)

    @property
    def begun(self) -> bool:
        """Is it known what a plain round takes, or how depths compare?"""
        return bool(self._seen)

    @property
    def plain_s(self) -> float:
        """Seconds of a plain round, as the machine is now."""
        return math.exp(min(self._mean[0], 10.0))

    def of(self, name: str, depth: int) -> tuple[float, float]:
        """At a depth of the ladder: the logarithm of a round's cost in plain rounds, and its deviation."""
        at = self._at[name, depth]
        # No round with drafts takes less than one without, whatever a stalled machine made it look like, and
        # none is hoped to.
        least = LEAST * depth
        cost, doubt = max(self._mean[at], least), math.sqrt(self._covariance[at][at] + self._unseen)
        return cost, min(doubt, cost - least)

    def hoped(self, name: str, depth: int) -> float:
        """The logarithm of its cost as it was timed, or as shapes let expect it, which no noise has touched;
        the lesser one.
        """
        at = self._at[name, depth]
        return min(max(self._mean[at], LEAST * depth), self._by_shape[at])

    def learned(self, name: str) -> dict[int, float]:
        """Depth -> cost in plain rounds, of the depths that were timed."""
        return {
            depth: math.exp(self._mean[at])
            for (whose, depth), at in self._at.items()
            if whose == name and at in self._seen
        }

    def remember(self, name: str, costs: Mapping[int, float]) -> None:
        """Begin from what an earlier run learned, which may have been on another machine."""
        for depth, cost in costs.items():
            at = self._at.get((name, depth))
            if at is not None:
                self._seen.add(at)
                self._update((at,), math.log(cost) - self._mean[at], REMEMBERED**2)
        if costs:
            self._doubt_costs(COST_JUMP**2)

    def _look(self) -> None:
        if self._together:
            times, self._together = self._together, []
            pairs = sorted((one + next_) / 2 for one, next_ in pairwise(times)) or times
            self._plain(pairs[(len(pairs) - 1) // 2])

    def _plain(self, seconds: float) -> None:
        if not self._seen:
            # The machine may be cold or stalled, and all else is compared with this one.
            self._first.append(seconds)
            if len(self._first) < FIRST_PLAIN:
                return
            seconds = sorted(self._first)[FIRST_PLAIN // 2]
        self._observe(0, seconds)

    def _observe(self, at: int, seconds: float) -> None:
        """A time of the plain round (0) or of one depth."""
        if at:
            self._doubt_costs(self._unseen)
        for i, drift in enumerate(self._drift):
            self._covariance[i][i] += drift
        summed = (0, at) if at else (0,)
        surprise = math.log(max(seconds, 1e-9)) - sum(self._mean[i] for i in summed)
        first, self._seen = at not in self._seen, self._seen | {at}
        if first and at and surprise > 0:
            return  # a shape's first time is long: kernels, buffers and views are made for it
        towards = self._towards(summed)
        spread = math.sqrt(sum(towards[i] for i in summed) + self._noise)
        off = max(abs(surprise) / (FAR * spread), 1.0)
        if off > 1:
            self._jumped(surprise)
            surprise /= off
        else:
            self._far = 0
        self._noise += NOISE_WEIGHT * (surprise**2 * self._noise / spread**2 - self._noise)
        self._noise = min(max(self._noise, LEAST_NOISE**2), MOST_NOISE**2)
        self._update(summed, surprise, self._noise * off**2)
        if at:
            self._noise_then, self._unseen, self._most_unseen = self._noise, 0.0, MOST_UNSEEN**2

    def _pass_over(self, at: int, seconds: float) -> None:
        """A depth's first time, where it is far from what was expected."""
        expected = math.exp(self._mean[0] + self._mean[at])
        doubt = math.sqrt(self._covariance[0][0] + self._covariance[at][at] + self._noise)
        if seconds > expected * math.exp(FAR * doubt):
            self._passed_over_s += seconds - expected

    def _jumped(self, surprise: float) -> None:
        """One far time is a stall, a run of them on one side is another speed, or costs that were wrong."""
        side = 1 if surprise > 0 else -1
        self._far = self._far + side if self._far * side >= 0 else side
        if abs(self._far) >= RUN:
            self._far = 0
            self._covariance[0][0] += JUMP**2
            self._doubt_costs(COST_JUMP**2)

    def _doubt_costs(self, by: float) -> None:
        """All depths may have become dearer or cheaper, together."""
        for line in self._covariance[1:]:
            line[1:] = [one + by for one in line[1:]]

    def _towards(self, summed: tuple[int, ...]) -> list[float]:
        """How all move together with the sum of these."""
        lines = [self._covariance[i] for i in summed]
        return list(lines[0]) if len(lines) == 1 else list(map(sum, zip(*lines, strict=True)))

    def _update(self, summed: tuple[int, ...], surprise: float, noise: float) -> None:
        """The sum of these was seen, which differs so much from what was expected."""
        towards = self._towards(summed)
        variance = sum(towards[i] for i in summed) + noise
        for i, own in enumerate(towards):
            if own:  # a plain round says nothing of depths that were never compared with it
                gain = own / variance
                self._mean[i] += gain * surprise
                line = self._covariance[i]
                self._covariance[i] = [one - gain * other for one, other in zip(line, towards, strict=True)]


def depths(limit: int) -> list[int]:
    """The ladder's depths up to a drafter's limit, the limit among them."""
    return sorted({*(depth for depth in LADDER if depth < limit), limit})


def token_cost(draft_bytes: int, draft_layers: int, target_bytes: int, target_layers: int) -> float:
    """A pass of one model in terms of another's, as weights are read and layers are run through."""
    return (draft_bytes + draft_layers * LAYER_BYTES) / max(target_bytes + target_layers * LAYER_BYTES, 1)


def _prior(
    at: Mapping[Place, int], kinds: Mapping[str, DrafterTraits]
) -> tuple[list[float], list[list[float]]]:
    """Means and covariances: the plain round's time is unknown, costs are near a line in the depth."""
    count = 1 + len(at)
    mean, pipeline, own = [0.0] * count, [0.0] * count, [0.0] * count
    slopes = {name: [0.0] * count for name in kinds}
    for (name, depth), i in at.items():
        slope = depth * (kinds[name].token_cost + VERIFY)
        cost = 1 + PIPELINE + slope
        mean[i] = math.log(cost)
        pipeline[i] = PIPELINE_DOUBT * PIPELINE / cost
        slopes[name][i] = SLOPE_DOUBT * slope / cost
        own[i] = OWN_DOUBT
    shared = [pipeline, *slopes.values()]
    covariance = [[sum(one[i] * one[j] for one in shared) for j in range(count)] for i in range(count)]
    for i in range(count):
        covariance[i][i] += own[i] ** 2
    covariance[0][0] = 100.0
    return mean, covariance
