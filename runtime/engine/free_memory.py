"""How much more memory there is for rows, looked up before they grow.

What a model was told when it was loaded may be more than there is by now: other programs and other models of
this process take memory, and perhaps nobody told it anything. Linux hands out addresses that it has no pages
for, and ends the process that writes to them. So a row is refused while there still is some.

A look takes a millisecond. Until the next one, what was taken meanwhile is subtracted.
"""

import sys
import time
from collections.abc import Callable

LASTS_S = 1.0
"""Other programs take what they want, so no look is good for longer."""


class FreeMemory:
    """available: bytes that the machine has now, 0 for unknown. spare_bytes: of these, what is for others."""

    def __init__(self, available: Callable[[], int], spare_bytes: int) -> None:
        self._available, self._spare_bytes = available, spare_bytes
        self._looked_s, self._seen, self._most = -LASTS_S, 0, 0

    def left(self, taken_bytes: int, unwritten_bytes: int) -> int:
        """Bytes that may still be taken; below 0 where it is too much. taken_bytes: by all who ask here.
        unwritten_bytes: what of it will only become pages, so that no look sees it yet.
        """
        now_s = time.monotonic()
        if now_s - self._looked_s >= LASTS_S or self._most - taken_bytes < self._seen // 2:
            self._looked_s, self._seen = now_s, self._available() or sys.maxsize
            self._most = self._seen + taken_bytes - unwritten_bytes
        return self._most - taken_bytes - self._spare_bytes
