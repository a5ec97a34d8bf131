"""How long a step took, told apart from how long the machine was busy with something else.

On a processor that other programs use too, most of a step's wall time may be waiting for a turn, and it falls
on steps by chance. The processor time of this process does not count it. So a step took its wall time, but
not much more than the processor time it used. Where a GPU computes, processor time says nothing.
"""

import time

from runtime.cpu.native import on_processor
from runtime.records import dataclass

WAITING = 1.25  # wall time per processor time beyond which a step was kept waiting


@dataclass(frozen=True, slots=True)
class Moment:
    """A reading of two clocks, in seconds."""

    wall_s: float
    """Of the monotonic clock."""
    worked_s: float | None = None
    """Processor time of this process; None where a GPU computes."""

    def since(self, earlier: "Moment") -> float:
        """Seconds that passed, those left out in which the process was kept from the processor."""
        passed = self.wall_s - earlier.wall_s
        if self.worked_s is None or earlier.worked_s is None:
            return passed
        return min(passed, WAITING * (self.worked_s - earlier.worked_s))


def now() -> Moment:
    return Moment(time.monotonic(), time.process_time() if on_processor() else None)
