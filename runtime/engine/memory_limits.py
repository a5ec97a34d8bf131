"""How an engine shares its memory: rows that are being written come before what is kept of earlier ones.

Layer memory has a limit and so has what is kept of earlier sequences, each as it was told. A row for which
layer memory has no room left takes it from what may be kept, and gives it back once nothing runs; the sum of
both limits stays. So a long prompt is not refused for the sake of old ones.
"""

from collections.abc import Callable

from runtime.cache.budget import Budget
from runtime.errors import CacheFull


class MemoryLimits:
    """budget: of layer memory. kept_limit: bytes that may be kept of earlier sequences; None: nothing is.
    keep: given a limit of those, forgets what is too much; how many bytes are kept then, which are more where
    rows stand on them.
    """

    def __init__(self, budget: Budget, kept_limit: int | None, keep: Callable[[int], int]) -> None:
        self._budget, self._keep = budget, keep
        self._kept_limit, self._borrowed = kept_limit, 0

    @property
    def kept_limit(self) -> int:
        """What may be kept now."""
        return max((self._kept_limit or 0) - self._borrowed, 0)

    @property
    def borrowed(self) -> bool:
        return self._borrowed > 0

    def limit_layers(self, limit_bytes: int) -> None:
        """Besides what was taken from what may be kept."""
        self._budget.limit_bytes = limit_bytes + self._borrowed

    def limit_kept(self, limit_bytes: int) -> int:
        """What was taken of it stays taken. Returns the bytes that it takes, more than the limit where rows
        stand on what is kept.
        """
        if self._kept_limit is None:
            return 0
        self._kept_limit = limit_bytes
        return max(limit_bytes, self._keep(self.kept_limit) + self._borrowed)

    def borrow(self, error: CacheFull) -> bool:
        """Make the room that layer memory lacks; False where there is less. Nothing is forgotten then, unless
        rows stand on the rest.
        """
        before, missing = self.kept_limit, error.wanted_bytes - error.budget_bytes
        if not 0 < missing <= before:
            return False
        given = min(missing, before - min(self._keep(before - missing), before))
        self._borrow(given)
        if given < missing:
            self._keep(self.kept_limit)
        return given == missing

    def give_back(self) -> None:
        """Nothing runs: as much of it as layer memory does not hold any more."""
        if not self._borrowed:
            return
        self._budget.make_room(self._borrowed)  # claims keep what their longest row had until asked
        limit_bytes, given = self._budget.limit_bytes, self._borrowed
        if limit_bytes is not None:
            given = min(given, max(limit_bytes - self._budget.held_bytes, 0))
        self._borrow(-given)
        self._keep(self.kept_limit)

    def _borrow(self, more_bytes: int) -> None:
        self._borrowed += more_bytes
        if self._budget.limit_bytes is not None:
            self._budget.limit_bytes += more_bytes
