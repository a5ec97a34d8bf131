"""How much of a prompt one step reads while other rows write: so much that they hardly notice.

Whoever writes gets a token per step, so a step that reads a chunk as well is a gap in what a reader sees. Its
length is bounded in time, not in tokens, as a token takes a large model a hundred times as long as a small
one. A prompt that is read alone takes the whole budget of a step. Pure: times come in as numbers.
"""

from collections import deque

GAP_S = 0.1  # what reading may add to a step; or as much as the step takes without it, where that is more
FIRST, LEAST = 64, 16  # tokens, where nothing was timed yet; and at the least: fewer pay badly
WEIGHT = 0.5  # of the newest time
STEPS = 9  # that only wrote, whose middle time counts: a stall before a prompt is not that of its every chunk


class Pace:
    def __init__(self) -> None:
        self._token_s: float | None = None
        self._written = deque[float](maxlen=STEPS)

    def wrote(self, seconds: float) -> None:
        """A step that only wrote took so long."""
        self._written.append(seconds)

    def read(self, tokens: int, seconds: float, *, wrote: bool) -> None:
        """So much of a prompt was read in a step that took so long. wrote: other rows had tokens, too."""
        seconds = max(seconds - self._written_s * wrote, seconds / 2)
        before = self._token_s
        now = seconds / tokens
        self._token_s = now if before is None else before + WEIGHT * (now - before)

    @property
    def _written_s(self) -> float:
        """What a step takes that only writes: no such step comes while a prompt is read."""
        return sorted(self._written)[len(self._written) // 2] if self._written else 0.0

    @property
    def beside(self) -> int:
        """Tokens that a step may read beside rows that write."""
        if self._token_s is None:
            return FIRST
        fitting = int(max(GAP_S, self._written_s) / max(self._token_s, 1e-9))
        return max(fitting // LEAST * LEAST, LEAST)
