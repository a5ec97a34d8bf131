"""One model in the pool: what the pool knows of it, as the decider and people see it."""

import asyncio
import math
from typing import Literal

from modelkit.errors import ModelClosed
from modelkit.memory import Memory
from modelkit.model import Model
from modelkit.server.models.loading import Loading
from modelkit.server.models.model_source import FoundModel
from modelkit.server.models.residents import Resident, State
from modelkit.server.models.shares import Need
from modelkit.server.models.turns import Turns
from runtime.engine.activity import Activity
from runtime.records import dataclass

# No more usual conversations than these have room in memory before a model counts as fitting, nor more than
# it answers at once: what one batch of them takes, or one that is so many times as long.
RESERVED_ROWS = 8


@dataclass(frozen=True, slots=True)
class Shown:
    """A model of the pool as people are shown it. Bytes; seconds."""

    name: str
    digest: str
    state: Literal["opening", "waiting", "loading", "ready", "leaving"]
    weight_bytes: int
    """Of the model alone."""
    draft_bytes: int
    adapter_bytes: int
    context_bytes: int
    """What is reserved for conversations."""
    prefix_bytes: int
    """What is kept of earlier prompts now."""
    prefix_limit_bytes: int
    """And how much that may be."""
    context_tokens: int
    """The whole context."""
    running: int
    """Rows that are being answered."""
    waiting: int
    """Requests that wait for a turn, and rows that wait for a place."""
    users: int
    """Requests that hold it, or wait for it."""
    drafters: tuple[str, ...]
    """Those that guess ahead; () for none."""
    load_s: float
    """What loading took."""
    writes: bool | None
    """Text; False: it makes embeddings and nothing else. None where that is not known yet."""
    expires_in_s: float | None
    """When it leaves unless it is used: infinity for never, None while it is in use."""
    keep_alive_s: float
    """How long it stays once nobody uses it any more: infinity for ever."""

    @property
    def size_bytes(self) -> int:
        """All that is set aside for it."""
        weights = self.weight_bytes + self.draft_bytes + self.adapter_bytes
        return weights + self.context_bytes + self.prefix_limit_bytes

    @property
    def taken_bytes(self) -> int:
        """What it takes of the memory: of what is set aside for earlier prompts, only what is filled."""
        return self.size_bytes - self.prefix_limit_bytes + self.prefix_bytes


class PoolEntry:
    """Changed by the pool alone, on the event loop's thread."""

    def __init__(self, key: int, found: FoundModel, turns: Turns, keep_alive_s: float, now_s: float) -> None:
        self.key, self.found, self.names = key, found, {found.name}
        self.state: State | Literal["opening"] = "opening"
        self.turns, self.keep_alive_s = turns, keep_alive_s
        self.loaded: asyncio.Future[Model] = asyncio.get_running_loop().create_future()
        self.loading: Loading | None = None
        self.memory: Memory | None = None
        self.model: Model | None = None
        self.users = 0
        self.used_s, self.expires_s = now_s, math.inf
        self.fixed_bytes = self.context_bytes = self.step_bytes = self.longest_bytes = 0
        self.prefix_wish_bytes = self.prefix_bytes = self.prefix_asked_bytes = 0
        self.lent_bytes = -1
        """What its conversations were told that they may take."""
        self.outdated = self.stopped = False

    def weigh(self, memory: Memory, limit_bytes: int) -> None:
        """This is what it takes. Of the memory for conversations no more is reserved than there is, if there
        is room for one. One prompt is read at a time.
        """
        self.memory, self.step_bytes = memory, memory.likely_step_bytes
        weights = memory.weight_bytes + memory.draft_bytes + memory.adapter_bytes
        usual = max(limit_bytes - weights - self.step_bytes, memory.likely_bytes)
        self.context_bytes = min(min(memory.rows, RESERVED_ROWS) * memory.likely_bytes, usual)
        self.fixed_bytes = weights + self.context_bytes + self.step_bytes
        self.longest_bytes = memory.cache_bytes + memory.draft_cache_bytes
        self.prefix_wish_bytes = memory.prefix_bytes

    @property
    def activity(self) -> Activity | None:
        """What it is doing at this moment; None where it is not there."""
        try:
            return None if self.model is None else self.model.activity
        except (ModelClosed, AttributeError):  # it is being closed on another thread
            return None

    @property
    def writes(self) -> bool | None:
        """Is its answer text? None where it is not there."""
        try:
            return None if self.model is None else self.model.writes
        except (ModelClosed, AttributeError):  # as above
            return None

    @property
    def need(self) -> Need:
        """For the decision what its conversations may take."""
        activity = self.activity
        taken = activity.layer_bytes if activity else 0
        return Need(self.key, self.context_bytes, taken, bool(self.users))

    @property
    def dead(self) -> bool:
        """Has its engine ended by itself?"""
        return self.state == "ready" and self.model is not None and not self.model.alive

    @property
    def resident(self) -> Resident:
        """For the decider. Not while it is being opened."""
        assert self.state != "opening"
        need = self.need
        return Resident(
            key=self.key,
            name=self.found.name,
            state=self.state,
            fixed_bytes=self.fixed_bytes + need.own_bytes - need.reserved_bytes,
            beyond_bytes=max(self.longest_bytes - need.own_bytes, 0),
            prefix_wish_bytes=self.prefix_wish_bytes,
            prefix_bytes=self.prefix_bytes,
            prefix_asked_bytes=self.prefix_asked_bytes,
            leases=self.users,
            used_s=self.used_s,
            expires_s=self.expires_s,
            outdated=self.outdated or self.dead,
        )

    def end(self, error: Exception) -> None:
        """Nobody will get it: those who wait are told why."""
        if not self.loaded.done():
            self.loaded.set_exception(error)
            self.loaded.exception()  # nobody may be there to hear it
        self.turns.close(error)

    def shown(self, now_s: float) -> Shown:
        memory, activity = self.memory, self.activity
        idle = self.state == "ready" and not self.users
        return Shown(
            name=self.found.name,
            digest=self.found.digest,
            state=self.state,
            weight_bytes=memory.weight_bytes if memory else 0,
            draft_bytes=memory.draft_bytes if memory else 0,
            adapter_bytes=memory.adapter_bytes if memory else 0,
            context_bytes=self.context_bytes + self.step_bytes,
            prefix_bytes=activity.prefix_bytes if activity else 0,
            prefix_limit_bytes=self.prefix_bytes,
            context_tokens=memory.context_tokens if memory else 0,
            running=activity.running if activity else 0,
            waiting=self.turns.waiting + (activity.waiting if activity else 0),
            users=self.users,
            drafters=activity.drafters if activity else (),
            load_s=self.model.load_s if self.model else 0.0,
            writes=self.writes,
            expires_in_s=max(self.expires_s - now_s, 0.0) if idle else None,
            keep_alive_s=self.keep_alive_s,
        )
