"""What large requests leave behind goes back to the system.

The C library keeps what was freed for what comes next: after a few prompts of megabytes the process held
1.2 GB that nothing used, until some model was loaded or closed. To give it back takes milliseconds and makes
the next allocations slower, so that is done once nothing large has ended for a while.
"""

import asyncio

from runtime import host

LARGE_BYTES = 1024 * 1024  # of a body; what is made of it takes many times as much
QUIET_S = 10.0  # whoever has left may have a text that still becomes tokens


class Trimming:
    """On the event loop's thread only."""

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._timer: asyncio.TimerHandle | None = None

    def ended(self, body_bytes: int) -> None:
        """A request with a body of that size is over."""
        if body_bytes < LARGE_BYTES:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._quiet_s, self._trim)

    def _trim(self) -> None:
        self._timer = None
        asyncio.get_running_loop().run_in_executor(None, host.trim)
