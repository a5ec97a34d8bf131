"""A loaded model at work, as whoever watches it sees it: what it holds and does, and how much it may keep.

`Model` is this and what it is asked for. Nothing here reads or writes text.
"""

from typing import TYPE_CHECKING

from modelkit import arguments, faults
from modelkit.bound import Bound
from modelkit.loaded.running import Running
from modelkit.prefixes import Prefix
from runtime import cpu

if TYPE_CHECKING:
    from runtime.engine.activity import Activity

_MOST_BYTES = 2**63 - 1


class AtWork(Bound):
    """After `close` every method raises ModelClosed, but for `alive`."""

    name: str
    """What was loaded."""
    _running: Running | None

    @property
    def threads(self) -> str | None:
        """How many threads the last step had, and why; None where that is not ours to choose."""
        return str(self._open.engine.threads()) if cpu.thread_count() else None

    @property
    def step_s(self) -> float:
        """How long the present step of the engine has been running, in seconds; 0 while there is none. It
        never waits, so that a watchdog can ask.
        """
        return self._open.engine.busy_s

    def prefixes(self) -> list[Prefix]:
        """What is kept in memory of earlier prompts: nodes of a tree, parents before children."""
        return self._open.prefixes()

    def limit_prefixes(self, limit_bytes: int) -> int:
        """Keep so many bytes of earlier prompts at most, from now on. What is beyond that is forgotten, but
        for what running requests stand on. Returns what it may take now: the limit, or what is held still
        where that is more; 0 for a model that was loaded to keep nothing. Waits for the engine's step.
        """
        return self._open.limit_prefixes(arguments.whole(limit_bytes, "limit_bytes", 0, _MOST_BYTES))

    def limit_layers(self, limit_bytes: int) -> None:
        """What running requests remember may take so many bytes together, from now on; one that alone needs
        more fails. Returns at once.
        """
        self._open.engine.limit_layers(arguments.whole(limit_bytes, "limit_bytes", 0, _MOST_BYTES))

    @property
    def alive(self) -> bool:
        """Can it answer? False once it is closed, and where its engine has ended."""
        running = self._running
        return running is not None and running.engine.alive

    @property
    def activity(self) -> "Activity":
        """What it is doing at this moment, without waiting for it. Raises ModelClosed."""
        running = self._open
        with faults.translated():
            return running.engine.activity

    @property
    def _open(self) -> Running:
        """Raises ModelClosed."""
        running = self._running
        if running is None:
            raise faults.closed(self.name)
        return running
