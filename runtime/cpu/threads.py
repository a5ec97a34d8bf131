"""How many threads a step gets: as many as there are free cores, looked at while steps run.

The number holds for the pool of the kernels (`runtime.cpu.native`) and for a bound BLAS. OpenBLAS cuts a
product into as many parts as it has threads and waits for all of them, spinning. Where every core is free,
two threads make a large product 1.3 to 1.9 times as fast (it keeps small ones on one thread by itself). Where
another program has the second core, the part there begins when the scheduler comes round to it: a product of
0.3 ms takes 10 to 30, and spinning for it takes processor time from others. The pool waits only for what a
thread has begun, and sleeps when that takes long; yet a thread that loses its core in the midst of a part is
waited for as well. So what counts is how many cores other programs leave free, and Linux says it: the time
that the processors were not idle, less our own. Several engines of one process divide them: two that read
prompts with two threads each take twice as long as with one.

The engine's own thread needs a core, too, where it is at work while the device computes, and of a small
model's steps that is more than half of the time: on two cores, a second thread of the pool then wins nothing,
and whatever that thread does beside its usual work is paid twice. Nor may it be on the core of the one that
computes, where a scheduler likes to wake it (`runtime/cpu/native/src/threads/apart.h`).

Invariants: with a number asked for, that is the number. Without one, never more than `most`; fewer at once
when others come, more again only when they stay away. What the system does not say changes nothing.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakSet

from runtime import host
from runtime.cpu import bind
from runtime.cpu.thread_limits import as_allowed, limiting
from runtime.host import ProcessorTimes
from runtime.records import dataclass

WINDOW_S = 0.25  # ticks of 10 ms are too coarse for less
STALE_S = 2.0  # a longer time without steps says little about now
SPARE = 0.35  # of a core that others may use while it still counts as free
QUIET_LOOKS = 2
HOST = 0.5  # of a step that the engine's thread works beside the device, from which on it needs a core
HOST_WEIGHT = 1 / 16  # of one step in that


@dataclass(frozen=True, slots=True)
class Choice:
    """How many threads a step gets, and why."""

    threads: int
    """What it gets."""
    most: int
    """What it could get at most."""
    others: float | None = None
    """Cores that other programs keep busy; None where that is unknown."""
    engines: int = 1
    """Engines of this process that compute now; they divide the free cores."""
    host: bool = False
    """One core is left to the engine's own thread."""
    wanted: bool = False
    """The number was asked for."""
    ranks: int = 1
    """Of one model on this machine, which get an equal part of its cores each."""
    said_by: str | None = None
    """The variable of the environment that allows no more, where there are cores for more."""

    def __str__(self) -> str:
        count = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        if self.wanted:
            return f"{count}, as asked for"
        if self.threads >= self.most:
            return f"{count}, {f'as {self.said_by} says' if self.said_by else 'all that there are cores for'}"
        if self.ranks > 1:
            return f"{count} of {self.most}: {self.ranks} ranks share this machine"
        if self.engines > 1:
            return f"{count} of {self.most}: {self.engines} models are at work"
        if self.host:
            return f"{count} of {self.most}: preparing such short steps needs a core"
        if (self.others or 0.0) <= SPARE:
            return f"{count} of {self.most}: more once other programs have been quiet for a moment"
        return f"{count} of {self.most}: other programs keep {self.others:.1f} cores busy"


def most_threads() -> int:
    """The physical cores that this process may use, and never more than VARIABLES say; 1 where there are
    neither kernels nor a bound BLAS.
    """
    return bind.most_threads() if _kernels() is None else as_allowed(host.cores())


def thread_count() -> int:
    """How many the next operation gets; 0 where this process does not decide it."""
    kernels = _kernels()
    return bind.report().threads if kernels is None else kernels.threads()


def set_threads(count: int) -> None:
    """Let operations from the next one on have `count` threads, of the kernels and of a bound BLAS; without
    either nothing changes. ValueError below 1.
    """
    if bind.report().threads != count:
        bind.set_threads(count)
    kernels = _kernels()
    if kernels is not None:
        kernels.set_threads(count)


def _keep_apart() -> None:
    """Keep this thread off the processor where the kernels' last job came from, if it has been put there."""
    kernels = _kernels()
    if kernels is not None:
        kernels.keep_off(kernels.computes_on())


def _let_back() -> None:
    """This thread may run anywhere again."""
    kernels = _kernels()
    if kernels is not None:
        kernels.let_back()


def _kernels() -> Any:
    from runtime.cpu import native  # MLX, which a report can do without

    return native.kernels


class Crowd:
    """Decides from looks at the machine how many threads this process may have in all.

    room: as the last look has it. threads: as several have it. others: see Choice.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._last: ProcessorTimes | None = None
        self._quiet: list[int] = []
        self.others: float | None = None
        self.room = self.threads = most

    def due(self, now_s: float) -> bool:
        """Is there something to learn from another look?"""
        return self._most > 1 and (self._last is None or now_s - self._last.at_s >= WINDOW_S)

    def see(self, now: ProcessorTimes | None) -> None:
        """Take a look into account."""
        before, self._last = self._last, now
        if now is None:
            return
        if before is None or now.at_s - before.at_s > STALE_S:
            self.others = float(min(now.running - 1, now.processors))  # rough, and soon to be corrected
            self.room = self.threads = self._count(now)
            self._quiet.clear()
            return
        passed = now.at_s - before.at_s
        busy = now.processors * passed - (now.idle_s - before.idle_s)
        self.others = max(0.0, busy - (now.own_s - before.own_s)) / passed
        self.room = self._count(now)
        self._settle(self.room)

    def _count(self, now: ProcessorTimes) -> int:
        free = now.processors - (self.others or 0.0) + SPARE
        return min(self._most, max(1, math.floor(free)))

    def _settle(self, room: int) -> None:
        """Fewer at once, more when several looks in a row have said so."""
        if room <= self.threads:
            self.threads = room
            self._quiet.clear()
            return
        self._quiet.append(room)
        if len(self._quiet) >= QUIET_LOOKS:
            self.threads = min(self._quiet)
            self._quiet.clear()


def threads_now() -> Choice:
    """What an engine would choose now, by two looks with a short wait between them."""
    most = most_threads()
    crowd = Crowd(most)
    crowd.see(host.processor_times())
    time.sleep(WINDOW_S)
    crowd.see(host.processor_times())
    return Choice(crowd.room, most, crowd.others, said_by=limiting())


_working: "WeakSet[Threads]" = WeakSet()
_lock = threading.Lock()


class Threads:
    """The thread count of one engine's steps. wanted: what was asked for; None chooses and chooses again.
    ranks: of one model on this machine, where it is one of several anywhere: they keep an equal part each.

    Pool and BLAS have one number for the whole process: with several engines, each sets its own before its
    steps.
    """

    def __init__(
        self,
        wanted: int | None = None,
        *,
        ranks: int | None = None,
        look: Callable[[], ProcessorTimes | None] = host.processor_times,
    ) -> None:
        most = most_threads()
        kept = wanted or (max(1, most // ranks) if ranks else None)
        self._look, self._chooses = look, kept is None
        self._crowd = Crowd(most)
        self._host = 0.0  # share of steps that the engine's thread works beside the device
        self.choice = Choice(
            kept or most,
            most,
            wanted=bool(wanted),
            ranks=ranks or 1,
            said_by=None if wanted else limiting(),
        )

    def before_step(self, now_s: float, *, beside: bool = False) -> None:
        """Let the step that follows use as many threads as pay; now_s: the monotonic clock. beside: the
        engine's thread is at work while the device computes, as the next step is prepared then.
        """
        with _lock:
            _working.add(self)
            engines = len(_working)
        crowd = self._crowd
        if self._chooses:
            if crowd.due(now_s):
                crowd.see(self._look())
            free = max(1, crowd.threads // engines)
            needs = beside and free > 1 and self._host > HOST
            count = free - needs
            if (count, crowd.others, engines, needs) != (
                self.choice.threads,
                self.choice.others,
                self.choice.engines,
                self.choice.host,
            ):
                self.choice = replace(
                    self.choice, threads=count, others=crowd.others, engines=engines, host=needs
                )
        set_threads(self.choice.threads)
        if beside:
            _keep_apart()

    def stepped(self, host_s: float, step_s: float) -> None:
        """A step took so long, and the engine's thread was at work beside the device for so much of it."""
        self._host += HOST_WEIGHT * (min(host_s / max(step_s, 1e-9), 1.0) - self._host)

    def rest(self) -> None:
        """The engine has nothing to do: others need not mind it. On the engine's thread, as `before_step`."""
        _let_back()
        with _lock:
            _working.discard(self)
