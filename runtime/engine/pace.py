"""How much of a prompt one step reads: while other rows write so much that they hardly notice.

Whoever writes gets a token per step, so a step that reads a chunk as well is a gap in what a reader sees. Its
length is bounded in time, not in tokens, as a token takes a large model a hundred times as long as a small
one. Pure: times come in as numbers.

A prompt that is read alone is read in long steps, but whoever comes or leaves in the midst of one waits for
its end: so these are bounded as well, where bits do not depend on how a prompt is cut. Elsewhere each takes
the whole budget, or the same prompt could be answered otherwise on a slower day. On a Zen 5 prompts take as
long in chunks of 128 as of 512, experts' and long ones, too, and 4 to 6 % longer in chunks of 64.
"""

import sys
from collections import deque

GAP_S = 0.1  # what reading may add to a step; or as much as the step takes without it, where that is more
FIRST, LEAST = 64, 16  # tokens, where nothing was timed yet; and at the least: fewer pay badly
ALONE_S, LEAST_ALONE = 0.5, 128  # of a step that reads alone
WEIGHT = 0.5  # of the newest time
STEPS = 9  # that only wrote, whose middle time counts: a stall before a prompt is not that of its every chunk


class Pace:
    """steady: bits are the same for any chunks."""

    def __init__(self, *, steady: bool = True) -> None:
        self.steady = steady
        self._token_s: float | None = None
        self._written = deque[float](maxlen=STEPS)

    def apart(self) -> "Pace":
        """That of something else that is read beside the same rows, whose tokens take another time."""
        other = Pace(steady=self.steady)
        other._written = self._written
        return other

    def wrote(self, seconds: float) -> None:
        """A step that only wrote took so long."""
        self._written.append(seconds)

    def read(self, tokens: int, seconds: float, *, wrote: bool) -> None:
        """So much of a prompt was read in a step that took so long. wrote: other rows had tokens, too.

        What is cut shorter than any step would be, before a mark say, says nothing: it takes as long as more.
        """
        if tokens < LEAST:
            return
        seconds = max(seconds - self._written_s * wrote, seconds / 2)
        before = self._token_s
        now = seconds / tokens
        self._token_s = now if before is None else before + WEIGHT * (now - before)

    @property
    def _written_s(self) -> float:
        """What a step takes that only writes: no such step comes while a prompt is read."""
        return sorted(self._written)[len(self._written) // 2] if self._written else 0.0

    @property
    def gap_s(self) -> float:
        """What whoever writes hardly notices between two tokens."""
        return max(GAP_S, self._written_s)

    @property
    def beside(self) -> int:
        """Tokens that a step may read beside rows that write."""
        return FIRST if self._token_s is None else self._fitting(self.gap_s, LEAST)

    @property
    def alone(self) -> int:
        """Tokens that a step may read where nobody writes."""
        if not self.steady:
            return sys.maxsize
        return LEAST_ALONE if self._token_s is None else self._fitting(ALONE_S, LEAST_ALONE)

    def _fitting(self, seconds: float, least: int) -> int:
        """Tokens that are read in this time, `least` or a multiple of it."""
        assert self._token_s is not None
        return max(int(seconds / max(self._token_s, 1e-9)) // least * least, least)
