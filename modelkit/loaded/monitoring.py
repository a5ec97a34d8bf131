"""What a loaded model holds and does, for whoever monitors it, and limits for what it may keep.

`Model` adds what it can be asked for. Nothing here reads or writes text.
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


class Monitored(Bound):
    """After `close` every method raises ModelClosed, but for `alive`."""

    name: str
    """What was loaded."""
    _running: Running | None

    @property
    def threads(self) -> str | None:
        """How many threads the last step used, and why; None if MLX chooses them."""
        return str(self._open.engine.threads()) if cpu.thread_count() else None

    @property
    def step_s(self) -> float:
        """Seconds that the engine's current step has been running; 0 if there is none. Never waits, so that a
        watchdog can ask.
        """
        return self._open.engine.busy_s

    def prefixes(self) -> list[Prefix]:
        """The prompts cached in memory: nodes of a tree, parents before children."""
        return self._open.prefixes()

    def limit_prefixes(self, limit_bytes: int) -> int:
        """From now on, cache at most this many bytes of earlier prompts. Whatever exceeds it is dropped,
        except what running requests use. Returns the bytes that the cache may take now: the limit, or what is
        still held if that is more; 0 for a model without a cache. Waits for the engine's step.
        """
        return self._open.limit_prefixes(arguments.whole(limit_bytes, "limit_bytes", 0, _MOST_BYTES))

    def limit_layers(self, limit_bytes: int) -> None:
        """From now on, the layer memory of running requests may take at most this many bytes together; a
        request that needs more by itself fails. Returns at once.
        """
        self._open.engine.limit_layers(arguments.whole(limit_bytes, "limit_bytes", 0, _MOST_BYTES))

    @property
    def alive(self) -> bool:
        """Can it answer? False once it is closed, and where its engine has ended."""
        running = self._running
        return running is not None and running.engine.alive

    @property
    def activity(self) -> "Activity":
        """What it is doing at this moment. Does not wait. Raises ModelClosed."""
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
