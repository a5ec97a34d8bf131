"""Loaded models by name. `acquire` lends one; it is loaded where it is not there yet.

What stays in memory and what comes is decided by `residents` and done by `moves`. A model is

    opening    headers are read on a thread of its own (`loading`); nothing is known of its size
    waiting    for room
    loading    weights are read
    ready      requests use it, or its time runs: it starts when the last one has ended
    leaving    it is being closed; nobody gets it any more

All who ask for a model while it comes wait for the same load, and when the last of them leaves, the load
ends. One package is one model in memory, under however many names. A name that
stands for another package now, or whose engine has died, gets a new model with the next request; the old one
leaves once nobody uses it.

On the event loop's thread only; whatever takes time runs on threads. `acquire` holds no time-out and no task
group open, so a lease may end in another task than it began in.
"""

import asyncio
import itertools
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from modelkit.durations import FOR_EVER
from modelkit.errors import ModelClosed, ModelkitError, ModelNotFound
from modelkit.model import Model
from modelkit.server.adapter_choice import chosen_among
from modelkit.server.models.model_source import FoundModel, FunctionModels, ModelSource
from modelkit.server.models.moves import Capacity, Moves
from modelkit.server.models.pool_entry import PoolEntry, Shown
from modelkit.server.models.turns import InAll, Priority, Turns
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """A model that stays loaded for as long as this is held."""

    model: Model
    load_s: float = 0.0
    """How long whoever holds it has waited for it to be loaded."""
    name: str = ""
    """As it is stored, with its tag."""
    digest: str = ""
    """The package that it is, whatever the name stands for meanwhile."""
    queued_s: float = 0.0
    """How long whoever holds it has waited for a turn after that."""
    end_turn: Callable[[], None] = lambda: None
    """Give the turn back before the lease: nothing runs any more, though not all of it has been sent."""


class Pool:
    """source: where models come from; or a function that gives the model of a name."""

    def __init__(
        self,
        source: ModelSource | Callable[[str], Model],
        capacity: Capacity | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source: ModelSource = FunctionModels(source) if callable(source) else source
        self.capacity, self._clock = capacity or Capacity(), clock
        self._moves = Moves(self._source, self.capacity, clock)
        self._all, self.tally = self._moves.all, self._moves.tally
        self._keys = itertools.count(1)
        self._in_all = InAll(self.capacity.waiting_in_all)

    @asynccontextmanager
    async def acquire(
        self,
        name: str,
        keep_alive: float | None = None,
        *,
        priority: Priority = "default",
        turn: bool = True,
    ) -> AsyncGenerator[Lease]:
        """A loaded model. keep_alive: seconds until it may leave once nobody holds it; negative: never; None:
        as it was for this name, or the server is set. priority: who goes first where many wait. turn=False:
        do not wait for a turn, as what takes no row (counting tokens) or little time (embedding) need not.

        Raises ModelNotFound, Busy where too many wait or no room became free in time, and what loading
        raises.
        """
        began_s = self._clock()
        entry = self._entry(name)
        entry.users += 1
        try:
            if keep_alive is not None:
                entry.keep_alive_s = FOR_EVER if keep_alive < 0 else keep_alive
                entry.stopped = False
            ticket = entry.turns.take(priority) if turn else None
            try:
                self._moves.start(entry)
                model = await asyncio.shield(entry.loaded)
                loaded_s = self._clock()
                if entry.users == 1:
                    self._moves.settle()  # it is in use from now on
                if ticket is not None:
                    await ticket.turn()
                queued_s = self._clock() - loaded_s
                found = entry.found
                lease = Lease(model, loaded_s - began_s, found.name, found.digest, queued_s)
                yield lease if ticket is None else replace(lease, end_turn=ticket.give_back)
            finally:
                if ticket is not None:
                    ticket.give_back()
        finally:
            self._moves.let_go(entry)

    def find(self, name: str) -> FoundModel:
        """What a name stands for at this moment; nothing is loaded. Raises ModelNotFound, InvalidName."""
        return self._source.find(name)

    def stop(self, name: str, *, adapters: Sequence[str] = (), now: bool = False) -> bool:
        """The model leaves once nobody uses it, whichever of its package's names it was asked for by; now: at
        once, and what runs is cancelled. False where it is not loaded. adapters: that were named with it; all
        leave with it. Raises InvalidName, and Refused where it has none such.
        """
        spelled, digest = self._source.spelled(name), None
        with suppress(ModelkitError):  # the package may have gone, and its model be there still
            digest = self._source.find(name).digest
        called = [
            one
            for one in self._all.values()
            if spelled in (*one.names, one.found.name) or one.found.digest == digest
        ]
        meant = [one for one in called if one.state != "leaving"]
        for one in meant:
            if one.model is not None and adapters:
                chosen_among(adapters, one.model.adapters)
        for one in meant:
            one.keep_alive_s, one.expires_s, one.stopped = 0.0, self._clock(), True
            if now:
                self._moves.stop_now(one)
        self._moves.settle()
        return bool(meant)

    def forget(self, name: str) -> None:
        """The name stands for nothing any more: a model that has no other leaves once nobody uses it. Raises
        InvalidName.
        """
        self._rename(self._source.spelled(name), None)
        self._moves.settle()

    def shown(self) -> list[Shown]:
        """All models that are in memory or on their way, those that leave last in front."""
        shown = [one.shown(self._clock()) for one in self._all.values()]
        return sorted(shown, key=lambda one: -math.inf if one.expires_in_s is None else -one.expires_in_s)

    def models(self) -> list[Model]:
        """Those that can answer."""
        return [one.model for one in self._all.values() if one.model is not None and one.state == "ready"]

    def settle(self) -> None:
        """Look again who stays and who leaves, as the clock may have gone on."""
        self._moves.settle()

    async def close(self) -> None:
        """Close every model; whoever still waits for one gets ModelClosed."""
        await self._moves.close()

    def _entry(self, name: str) -> PoolEntry:
        """The model that the name stands for, which may be a new one."""
        if self._moves.closed:
            raise ModelClosed("the server is stopping")
        try:
            found = self._source.find(name)
        except ModelNotFound:
            self._rename(self._source.spelled(name), None)
            raise
        keep_alive_s = self._keep_alive_s(found.name)
        self._rename(found.name, found.digest)
        for one in self._all.values():
            if one.found.digest == found.digest and self._can_serve(one):
                one.names.add(found.name)
                return one
        turns = Turns(self.capacity.waiting, self._in_all, self._clock)
        made = PoolEntry(next(self._keys), found, turns, keep_alive_s, self._clock())
        self._all[made.key] = made
        return made

    def _keep_alive_s(self, name: str) -> float:
        """Of a new model: that of the one whose name it takes over (a package that was created again, an
        engine that died), so that what `serve` loads first stays loaded.
        """
        held = [one.keep_alive_s for one in self._all.values() if name in one.names and not one.stopped]
        return held[-1] if held else self.capacity.keep_alive_s

    def _can_serve(self, one: PoolEntry) -> bool:
        dead = one.model is not None and not one.model.alive
        return one.state != "leaving" and not one.outdated and not dead

    def _rename(self, name: str, digest: str | None) -> None:
        """The name stands for this package now, and for no other model."""
        for one in self._all.values():
            if name in one.names and one.found.digest != digest:
                one.names.discard(name)
                one.outdated = not one.names
                if one.names and one.found.name == name:
                    one.found = FoundModel(min(one.names), one.found.digest)  # what it goes by now
