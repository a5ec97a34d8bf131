"""How far all ranks together are with a model that they start, as rank 0 knows it.

Ranks talk in turns, so while weights are read all of them stop at the same shares of their own work, say
how much they have read, and go on: at most STOPS times, and never for less than STOP_BYTES. Who has read less
than others by then would be waited for in the end anyway.
"""

from collections.abc import Callable, Sequence

from modelkit.errors import LoadError
from modelkit.units import size

STOPS = 20
STOP_BYTES = 64 << 20

OnBytes = Callable[[int], object]
"""Called with bytes, once they are there."""


class Progress:
    """Of what is done for one model after the other; read on any thread."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._doing: tuple[str, int, int] | None = None

    def at(self, doing: str, done_bytes: int, all_bytes: int) -> None:
        """doing: such as "read"."""
        self._doing = doing, min(done_bytes, all_bytes), all_bytes

    def over(self) -> None:
        """Nothing is under way."""
        self._doing = None

    def text(self) -> str:
        """A few words behind what is waited for; "" where nothing is known."""
        doing = self._doing
        if doing is None:
            return ""
        word, done_bytes, all_bytes = doing
        return f": {size(done_bytes)} of {size(all_bytes)} {word} by {self._ranks} machines"


class Pace:
    """Of one rank that reads its share. shares: bytes of all ranks'. agree: says how much was read here, and
    gives what every rank says; raises LoadError where one has a problem. on_bytes: called with all that
    was read.
    """

    def __init__(
        self,
        shares: Sequence[int],
        rank: int,
        agree: Callable[[int], Sequence[int]],
        on_bytes: OnBytes,
        progress: Progress,
    ) -> None:
        self._all, self._own = sum(shares), max(shares[rank], 1)
        self._stops = min(STOPS, max(shares) // STOP_BYTES)
        self._agree, self._on_bytes, self._progress = agree, on_bytes, progress
        self._read = self._reached = self._known = 0
        self.failed = False
        """Has another rank a problem, of which all know?"""

    def read(self, count: int) -> None:
        """So many bytes more are here."""
        self._read += count
        while self._reached < self._stops and self._read * (self._stops + 1) >= self._own * (
            self._reached + 1
        ):
            self._stop()

    def finish(self) -> None:
        """All of it is here: for those that have got less than was planned, the stops that are left. What
        `on_bytes` raises is raised while the others can still hear of it.
        """
        while self._reached < self._stops:
            self._stop()
        self._tell(self._all)
        self._read_by_all()
        self._progress.over()

    def _stop(self) -> None:
        self._reached += 1
        done = self._read_by_all()
        self._progress.at("read", done, self._all)
        self._tell(min(done, self._all))

    def _read_by_all(self) -> int:
        """What all have read."""
        try:
            return sum(self._agree(self._read))
        except LoadError:
            self.failed = True
            raise

    def _tell(self, done: int) -> None:
        new, self._known = max(done - self._known, 0), max(done, self._known)
        if new:
            self._on_bytes(new)
