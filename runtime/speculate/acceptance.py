"""How likely drafts are kept, place by place: the k-th of a round when those before it were.

A running mean for each place, which begins at what the place before it reached. Texts change, so old rounds
count less and less; and what was not tried for long is known less and less, until it is worth another look.
"""

import math
from collections.abc import Sequence

from runtime.speculate.lessons import Accepted

FIRST_GUESS, GUESS_WEIGHT = 0.5, 1.5  # how likely the first draft is kept, and how many drafts that is worth
MOST_COUNTED = 40.0  # drafts that a mean is made of
FORGET = 1 / 400  # share of what is known of a place that a round without drafts takes away


class Acceptance:
    """Of one drafter's guesses of one grade."""

    def __init__(self) -> None:
        self._shares: list[float] = []
        self._counts: list[float] = []
        self._rested = 0  # rounds that the counts have not heard of

    def judge(self, judged: Sequence[tuple[int, int]]) -> None:
        """One round: per row, drafts judged and drafts kept. A draft is judged if all before it were kept."""
        for count, kept in judged:
            for place in range(min(count, kept + 1)):
                self._learn(place, place < kept)

    def saw(self, kept: bool) -> None:
        """A first draft that was not made would have been kept, or not."""
        self._learn(0, kept)

    @property
    def evidence(self) -> float:
        """How many first drafts were judged, old ones counting less."""
        self._catch_up()
        return self._counts[0] if self._counts else 0.0

    def rest(self, rounds: int = 1) -> None:
        """So many passed without drafts. It costs next to nothing: most rounds are such, and fast models have
        many in a second.
        """
        self._rested += rounds

    def tokens(self, most: int) -> list[tuple[float, float]]:
        """For rounds of 0 to `most` drafts: expected tokens, the target's own included; and the same if all
        places do better than is believed by one standard deviation.
        """
        self._catch_up()
        expected = hoped = chance = hope = 1.0
        believed, found = FIRST_GUESS, [(1.0, 1.0)]
        for place in range(most):
            believed, doubt = self._believed(place, believed)
            chance *= believed
            hope *= min(believed + doubt, 1.0)
            expected += chance
            hoped += hope
            found.append((expected, hoped))
        return found

    def learned(self) -> Accepted:
        self._catch_up()
        return tuple(
            (share, max(round(count), 1)) for share, count in zip(self._shares, self._counts, strict=True)
        )

    def remember(self, accepted: Sequence[tuple[float, int]]) -> None:
        """Begin from what an earlier run learned."""
        self._shares = [share for share, _ in accepted]
        self._counts = [min(float(count), MOST_COUNTED) for _, count in accepted]
        self._rested = 0

    def _catch_up(self) -> None:
        if self._rested:
            left, self._rested = (1 - FORGET) ** self._rested, 0
            self._counts = [count * left for count in self._counts]

    def _believed(self, place: int, before: float) -> tuple[float, float]:
        """How likely a draft there is kept, and the standard deviation of that."""
        share, count = (
            (self._shares[place], self._counts[place]) if place < len(self._shares) else (before, 0.0)
        )
        weight = count + GUESS_WEIGHT
        mean = (share * count + before * GUESS_WEIGHT) / weight
        return mean, math.sqrt(max(mean * (1 - mean), 0.01) / (weight + 1))

    def _learn(self, place: int, kept: bool) -> None:
        self._catch_up()
        if place == len(self._shares):
            self._shares.append(float(kept))
            self._counts.append(0.0)
        self._counts[place] = min(self._counts[place] + 1, MOST_COUNTED)
        self._shares[place] += (float(kept) - self._shares[place]) / self._counts[place]
