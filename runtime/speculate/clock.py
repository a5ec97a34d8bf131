"""How long a step took, told apart from how long the machine was busy with something else.

On a processor that other programs use too, most of a step's wall time may be waiting for a turn, and it falls
on steps by chance. The processor time of this process does not count it. So steps took their wall time, but
not much more than the processor time they used. Where a GPU computes, processor time says nothing.

A system adds what another thread computes to the processor time at its ticks only: of four steps of 1 ms, one
may seem to use 4 and the others nothing. So the work that a step seems to lack is taken from what the steps
before had more than they needed, up to what may be late.
"""

import time

from runtime.cpu.native import on_processor
from runtime.records import dataclass

WAITING = 1.25  # wall time per processor time beyond which steps were kept waiting
LATE_S = 0.01  # between the ticks of a slow system; 4 ms are usual


@dataclass(frozen=True, slots=True)
class Moment:
    """A reading of two clocks, in seconds."""

    wall_s: float
    """Of the monotonic clock."""
    worked_s: float | None = None
    """Processor time of this process; None where a GPU computes."""


class Spent:
    """What steps took."""

    def __init__(self) -> None:
        self._late_s = WAITING * LATE_S

    def between(self, began: Moment, ended: Moment) -> float:
        """Seconds of a step, those left out in which the process was kept from the processor."""
        passed = ended.wall_s - began.wall_s
        if ended.worked_s is None or began.worked_s is None:
            return passed
        able = WAITING * (ended.worked_s - began.worked_s) + self._late_s
        spent = min(passed, able)
        self._late_s = min(able - spent, WAITING * LATE_S)
        return spent


def now() -> Moment:
    return Moment(time.monotonic(), time.process_time() if on_processor() else None)
