"""What was decided about the pool's models is done here: loading, making room, leaving.

`settle` asks the decider (`residents`) whenever something has changed, and at the time it wants. All that
takes longer than a moment runs on threads, and settles again when it is done. On the event loop's thread
only.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from modelkit.errors import Busy, LoadError, ModelClosed, ModelkitError
from modelkit.faults import as_modelkit_error
from modelkit.memory import Memory
from modelkit.model import Model
from modelkit.server.models.loading import Loading
from modelkit.server.models.model_source import ModelSource
from modelkit.server.models.pool_entry import PoolEntry
from modelkit.server.models.residents import decide
from modelkit.server.models.shares import lend
from modelkit.server.models.tally import Left, Tally, Why
from runtime.records import dataclass

UNLIMITED = 2**62
_SPARE_TURNS = 4  # that wait in the engine already, so that a row that ends is followed at once


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much the pool may hold."""

    memory_bytes: int = UNLIMITED
    """Of all models together."""
    keep_alive_s: float = 300.0
    """How long a model stays that nobody uses, where no request has said."""
    patience_s: float = 300.0
    """How long a request waits for its model to get room."""
    waiting: int = 512
    """Requests that wait for one model."""
    waiting_in_all: int = 1024
    """And for all of them together."""


class Moves:
    """all: every model that is in memory or on its way, by its key."""

    def __init__(self, source: ModelSource, capacity: Capacity, clock: Callable[[], float]) -> None:
        self.all: dict[int, PoolEntry] = {}
        self.closed = False
        self.tally = Tally()
        self._source, self._capacity, self._clock = source, capacity, clock
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loads: set[Loading] = set()
        """Whose threads run, those that nobody wants any more among them."""
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="modelkit-pool")

    def settle(self) -> None:
        """Decide who stays and who comes, and have that done. Called whenever something changes."""
        if self.closed:
            return
        known = [one.resident for one in self.all.values() if one.state != "opening"]
        capacity, now_s = self._capacity, self._clock()
        decision = decide(known, capacity.memory_bytes, now_s, capacity.patience_s)
        self.tally.evictions.update(self.all[key].found.name for key in decision.evict)
        for key in decision.leave:
            self.tally.departures[
                self.all[key].found.name, self._why(key in decision.evict, self.all[key])
            ] += 1
            self.leave(self.all[key])
        for key, size in decision.keep:
            self._keep(self.all[key], size)
        for key, size in decision.load:
            self._admit(self.all[key], size)
        for key, sentence in decision.refuse:
            self._refuse(self.all[key], sentence)
        self._lend()
        self._wake_at(decision.again_s)

    @staticmethod
    def _why(evicted: bool, entry: PoolEntry) -> Left:
        if evicted:
            return "room"
        if entry.outdated:
            return "replaced"
        if entry.dead:
            return "failed"
        return "stopped" if entry.stopped else "idle"

    async def close(self) -> None:
        """Close every model; whoever still waits for one gets ModelClosed."""
        self.closed = True
        self._wake_at(math.inf)
        standings, loop = list(self.all.values()), asyncio.get_running_loop()
        gone = ModelClosed("the server is stopping")
        for one in standings:
            if one.loading is not None:
                one.loading.refuse(gone)
            one.end(gone)
        models = [one.model for one in standings if one.model is not None]
        await asyncio.gather(*(loop.run_in_executor(self._threads, model.close) for model in models))
        for load in list(self._loads):
            await loop.run_in_executor(self._threads, load.thread.join)
        await asyncio.sleep(0)  # what came of loads that could not be broken off is closed by `_done`
        # Who is done leaves the set at the loop's next turn, which waiting for the done alone never gives it.
        while tasks := [task for task in self._tasks if task.get_loop() is loop and not task.done()]:
            await asyncio.gather(*tasks)
        self.all.clear()
        await asyncio.to_thread(self._threads.shutdown)

    def _lend(self) -> None:
        """Say to each model what its conversations may take: memory that nobody was promised goes to those in
        use.
        """
        held = [one for one in self.all.values() if one.state in ("loading", "ready", "leaving")]
        promised = sum(one.fixed_bytes + max(one.prefix_bytes, one.prefix_asked_bytes) for one in held)
        needs = [one.need for one in held if one.state == "ready"]
        for key, size in lend(needs, self._capacity.memory_bytes - promised).items():
            entry = self.all[key]
            if entry.lent_bytes != size and entry.model is not None:
                entry.lent_bytes = size
                with suppress(ModelClosed):
                    entry.model.limit_layers(size)

    def start(self, entry: PoolEntry) -> None:
        """Begin to load it, unless that has begun."""
        if entry.loading is None and entry.model is None:
            load = entry.loading = Loading(
                self._source,
                entry.found,
                lambda memory: self._foreseen(entry, memory),
                lambda outcome: self._done(entry, load, outcome),
            )
            self._loads.add(load)

    def _foreseen(self, entry: PoolEntry, memory: Memory) -> None:
        """Its headers are read."""
        if entry.state == "opening" and entry.key in self.all:
            entry.weigh(memory, self._capacity.memory_bytes)
            entry.state = "waiting"
            self.settle()

    def _admit(self, entry: PoolEntry, prefix_bytes: int) -> None:
        entry.state = "loading"
        entry.prefix_bytes = entry.prefix_asked_bytes = prefix_bytes
        if entry.loading is not None:
            entry.loading.grant(prefix_bytes)

    def _refuse(self, entry: PoolEntry, sentence: str) -> None:
        if entry.fixed_bytes > self._capacity.memory_bytes:
            why: Why = "too_large"
            error: ModelkitError = LoadError(
                sentence, hint="Take a smaller model or num_ctx, or give the server more memory."
            )
        else:
            why = "no_room"
            error = Busy(sentence, waiting=entry.users, retry_after_s=30, hint="Try again later.")
        self.tally.failures[entry.found.name, why] += 1
        self.drop(entry, error)

    def drop(self, entry: PoolEntry, error: ModelkitError) -> None:
        """It will not come."""
        self.all.pop(entry.key, None)
        if entry.loading is not None:
            entry.loading.refuse(error)
        entry.end(error)

    def _done(self, entry: PoolEntry, load: Loading, outcome: Model | BaseException) -> None:
        """The thread that loads it has ended."""
        self._loads.discard(load)
        if self.closed or entry.loaded.done():  # nobody wants it any more
            entry.loading, entry.model = None, None if isinstance(outcome, BaseException) else outcome
            self.leave(entry)
            return
        places = 0
        if not isinstance(outcome, BaseException):
            try:
                places = outcome.activity.places
            except ModelClosed as error:  # its engine has ended since
                outcome = error
        if isinstance(outcome, BaseException):
            self.tally.failures[entry.found.name, "error"] += 1
            self.drop(
                entry, as_modelkit_error(outcome) if isinstance(outcome, Exception) else _ended(outcome)
            )
            self.settle()
            return
        entry.model, entry.loading, entry.state = outcome, None, "ready"
        entry.weigh(outcome.memory, self._capacity.memory_bytes)
        entry.found = self._source.came(entry.found, outcome)
        entry.used_s = entry.expires_s = self._clock()
        entry.loaded.set_result(outcome)
        entry.turns.open(places + _SPARE_TURNS)
        self.settle()

    def let_go(self, entry: PoolEntry) -> None:
        """Somebody needs it no more, or never got it."""
        entry.users -= 1
        if self.closed:
            return
        entry.used_s = self._clock() if entry.state == "ready" else entry.used_s
        unwanted = ModelClosed(f"nobody waits for {entry.found.name} any more")
        if not entry.users and entry.state in ("opening", "waiting") and entry.key in self.all:
            self.drop(entry, unwanted)
        if not entry.users and entry.state == "loading":
            self._break_off(entry, unwanted)
        if not entry.users:
            entry.expires_s = self._clock() + entry.keep_alive_s
        if entry.prefix_bytes > entry.prefix_asked_bytes and entry.state == "ready":
            self._keep(entry, entry.prefix_asked_bytes)  # what it stood on can go now
        self.settle()

    def _keep(self, entry: PoolEntry, size: int) -> None:
        """It is to keep at most so much of earlier prompts."""
        model = entry.model
        assert model is not None
        entry.prefix_asked_bytes = size
        entry.prefix_bytes = max(entry.prefix_bytes, size)

        def ask() -> int:
            try:
                return model.limit_prefixes(size)
            except ModelkitError:  # it has died; what it kept goes with it
                return size

        async def asked() -> None:
            held = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
            if entry.prefix_asked_bytes == size:
                entry.prefix_bytes = max(held, size)
                self.settle()

        self._task(asked())

    def leave(self, entry: PoolEntry) -> None:
        """Close it."""
        entry.state = "leaving"
        model = entry.model

        async def left() -> None:
            if model is not None and not self._held(model, entry):
                await asyncio.get_running_loop().run_in_executor(self._threads, model.close)
            self.all.pop(entry.key, None)
            self.settle()

        self._task(left())

    def _held(self, model: Model, leaving: PoolEntry) -> bool:
        """Does it stay in memory for another? A source may give one model for two names."""
        others = (one for one in self.all.values() if one is not leaving and one.state != "leaving")
        return any(one.model is model for one in others)

    def stop_now(self, entry: PoolEntry) -> None:
        """Close it, with whatever it is doing; or end its load."""
        stopped = ModelClosed(f"{entry.found.name} was stopped", hint="Ask again, and it is loaded again.")
        if entry.state == "ready":
            entry.end(stopped)
            self.tally.departures[entry.found.name, "stopped"] += 1
            self.leave(entry)
        elif entry.state == "loading":
            self._break_off(entry, stopped)
        else:
            self.drop(entry, stopped)

    def _break_off(self, entry: PoolEntry, error: ModelkitError) -> None:
        """Its weights are being read, and take room until that has ended; then `_done` sees it off."""
        entry.state = "leaving"
        entry.end(error)
        if entry.loading is not None:
            entry.loading.refuse(error)

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wake_at(self, moment_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if moment_s < math.inf:
            delay_s = min(max(moment_s - self._clock(), 0.0) + 0.001, 86400.0)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.settle)


def _ended(outcome: BaseException) -> ModelkitError:
    return ModelClosed(f"the load was broken off: {outcome!r}")
