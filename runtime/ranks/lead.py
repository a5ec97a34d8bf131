"""Rank 0's side: whatever its engine does to layer memory, to pages and with the network, the others do too.

The engine is that of a single machine. What it is given here are a memory, a store of pages and a network
like those of a single machine, which note what was done. The others are told with the next forward pass,
before it begins; what comes back is what the networks exchange, and nothing else.

Invariants: what raises here was not told, and is done nowhere. A forward pass is on its way as soon as it was
told: all ranks make their exchanges in the order of these passes.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import takewhile
from typing import Any, TypeVar

import mlx.core as mx

from runtime import device
from runtime.cache.budget import Budget
from runtime.cache.memory import LayerMemory
from runtime.cache.pages import Page
from runtime.cache.prefix import Match, PageNode, PrefixStore
from runtime.cache.prompts import KeptPrompts
from runtime.cache.protocol import Rotate
from runtime.cache.restore import Restoring
from runtime.cache.sharing import Sharing
from runtime.errors import NotSupported, RankLost
from runtime.loaded import LoadedModel
from runtime.ranks.decision import Action, Decision, Forward, keys_to_json
from runtime.ranks.free_room import said_of, tightest_of
from runtime.ranks.group import Group
from runtime.ranks.memories import LeadingMemories, LeadingMemory, read_first
from runtime.ranks.whole_model import Whole
from runtime.step import Inputs, Step
from runtime.trunks.taps import taps_of

U = TypeVar("U", bound=Hashable)


class Leading:
    """What an engine needs to lead a group. ended: called once it is closed. ranks_here: how many share this
    machine, this one included.
    """

    def __init__(self, group: Group, ended: Callable[[], object] = lambda: None, ranks_here: int = 1) -> None:
        self.group, self._ended, self._ranks_here = group, ended, ranks_here

    def __call__(self, share: LoadedModel) -> "Lead":
        """On the engine's thread. share: what rank 0 has of the model."""
        return Lead(self.group, share, self._ended, self._ranks_here)


class Lead:
    """Tells a group what is done with a model. It lives on the thread of the engine that it is made for."""

    def __init__(
        self, group: Group, share: LoadedModel, ended: Callable[[], object], ranks_here: int
    ) -> None:
        self.group, self._actions, self._ended = group, list[Action](), ended
        self._ranks_here, self._tightest = ranks_here, ""
        self._with: tuple[Step, Action] | None = None
        self._lane = group.lane()
        group.keep_apart()
        self._whole = Whole.of(share)
        self._memories = LeadingMemories(self._whole, self.done)
        self.model = replace(
            share,
            described=replace(share.described, layout=self._whole.layout),
            network=LeadingNetwork(self, share, self._whole),
            beside=self._memories.beside,
        )

    @property
    def parts(self) -> int:
        """In how many parts rows may decode, so that every stage always has one."""
        return self.group.size if self.group.takes_turns else 1

    def memory(self, kept_format: str | None, budget: Budget) -> LayerMemory:
        """For the target, on all ranks. kept_format: as in build_memory. The budget is for all of them."""
        return self._memories.own(self.model.dtype, kept_format, budget=budget)

    def sharing(self, memory: LayerMemory, store: PrefixStore, **options: Any) -> Sharing[Any]:
        """Keeps pages on all ranks; arguments as in Sharing."""
        self.done("keep", store.limit_bytes)
        return LeadingSharing(self, memory, store, **options)

    def prompts(self, memory: LayerMemory, store: PrefixStore) -> KeptPrompts:
        """Keeps what encoders read on all ranks; arguments as in KeptPrompts."""
        self.done("keep", store.limit_bytes)
        return LeadingPrompts(self, memory, store)

    def expect(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> None:
        """The others read their parts of these pages, too, from when they hear of it."""
        stop = ranges[-1][1] if ranges else 0
        self.done("fetch", keys_to_json(keys[:stop]), [list(one) for one in ranges])

    def readable(self, count: int) -> int:
        """How many of the first so many pages that they were to fetch every rank can read: one that lacks its
        part of a page goes without, and so do all.
        """
        self.done("read", count)
        self._tell()
        found = takewhile(bool, (self.group.least(1) for _ in range(count)))
        return sum(1 for _ in found)

    def room_bytes(self, spare_bytes: int) -> int:
        """How many bytes more of layer memory, that of all ranks, each of them has room for its part of. Each
        leaves spare_bytes of its own.
        """
        self.done("room", spare_bytes)
        self._tell()
        free_bytes = device.available_bytes() // self._ranks_here
        tightest = tightest_of(self.group.counts(*said_of(self._whole, free_bytes, spare_bytes)))
        self._tightest = str(tightest)
        return max(tightest.room_bytes, 1)  # 0 is for unknown

    def tightest(self) -> str:
        """Which rank has how much, of which the others have more; "" before anybody was asked."""
        return self._tightest

    def done(self, *action: Any) -> None:
        """This was done here, and is to be done by the others."""
        self._actions.append(action)

    def done_with(self, step: Step, *action: Any) -> None:
        """This was done here to a step, and is to be done by the others if that is computed next."""
        self._with = step, action

    def forward(self, step: Step, memory: LayerMemory, prompts: mx.array | None) -> None:
        """The network computes this step next. prompts: int32 [B, T], which an encoder reads first."""
        if not isinstance(memory, LeadingMemory) or not self._memories.has(memory):
            raise NotSupported("this is computed on one machine only: load the model without --ranks for it")
        source = 0 if prompts is None else prompts.shape[1]
        if self._with is not None and self._with[0] is step:
            self.done(*self._with[1])
        self._with = None
        self.group.renew()
        self._tell(Forward.of(step, memory.number, source))
        if prompts is not None:
            self.group.spread(prompts, prompts.shape)
        ids = step.ids
        self.group.spread(ids, ids.shape)

    def rest(self) -> None:
        """Nothing is computed for now: let the others know what was done last."""
        self._memories.let_go()
        if not self.group.lost:
            self.group.settle()
            if self._actions:
                self._tell()

    def end(self) -> bool:
        """The model is closed here. False where the others cannot be told any more."""
        with suppress(RankLost), self.group.bounded():
            # What was done last, too: the others have disks to keep it on.
            self._tell(ends=True)
            self.group.settle()
            mx.synchronize()  # whoever tells them something next may do so on another thread
        self.group.let_go()
        self._ended()
        return not self.group.lost

    def _tell(self, forward: Forward | None = None, *, ends: bool = False) -> None:
        self._memories.let_go()
        decision = Decision(tuple(self._actions), forward, ends)
        self._actions.clear()
        self.group.tell(decision.to_bytes(), self._lane)


class LeadingSharing(Sharing[U]):
    """Users are told as numbers. `reached` and `end` are made of what is told here."""

    def __init__(self, lead: Lead, memory: LayerMemory, store: PrefixStore, **options: Any) -> None:
        super().__init__(memory, store, **options)
        self._lead = lead
        self._numbers: dict[U, int] = {}
        self._told: dict[U, int] = {}
        self._count = 0

    def enter(
        self, user: U, place: int, keys: Sequence[Hashable], match: Match, marks: Iterable[int] = ()
    ) -> Restoring:
        restoring = super().enter(user, place, keys, match, marks)
        self._count += 1
        self._numbers[user], self._told[user] = self._count, len(keys)
        self._lead.done("begin", self._count, place, keys_to_json(keys), restoring.stop)
        return LeadingRestoring(self._lead, self._count, restoring)

    def expect(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> None:
        self._lead.expect(keys, ranges)

    def readable(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> int:
        return self._lead.readable(len(ranges))

    def page(self, user: U, place: int, keys: Sequence[Hashable]) -> PageNode | None:
        told = self._told[user]
        if len(keys) > self._uses[user].kept:
            self._lead.done("page", self._numbers[user], place, len(keys), keys_to_json(keys[told:]))
            self._told[user] = max(told, len(keys))
        return super().page(user, place, keys)

    def forget(self, user: U) -> None:
        super().forget(user)
        number = self._numbers.pop(user, None)
        if number is not None:
            del self._told[user]
            self._lead.done("forget", number)

    def clear(self) -> None:
        super().clear()
        self._lead.done("clear_pages")

    def resize(self, limit_bytes: int) -> None:
        super().resize(limit_bytes)
        self._lead.done("resize_pages", limit_bytes)


class LeadingRestoring(Restoring):
    """What is put back here the others put back before the same step, so that no step waits for all of it."""

    def __init__(self, lead: Lead, user: int, restoring: Restoring) -> None:
        super().__init__(restoring.memory, restoring.pages, restoring.stop)
        self._lead, self._user = lead, user

    def put_back(self, row: int, until: int) -> None:
        super().put_back(row, until)
        self._lead.done("put_back", self._user, row, until)


class LeadingPrompts(KeptPrompts):
    """What is given to a row goes with its step, and what is kept of one with whatever is told next."""

    def __init__(self, lead: Lead, memory: LayerMemory, store: PrefixStore) -> None:
        super().__init__(memory, store)
        self._lead = lead

    def expect(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> None:
        self._lead.expect(keys, ranges)

    def readable(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> int:
        return self._lead.readable(len(ranges))

    def give(self, step: Step, keys: Sequence[Hashable], match: Match) -> None:
        super().give(step, keys, match)
        self._lead.done_with(step, "give", keys_to_json(keys))

    def keep(self, place: int, keys: Sequence[Hashable]) -> Page | None:
        self._lead.done("keep_prompt", place, keys_to_json(keys))
        return super().keep(place, keys)

    def clear(self) -> None:
        super().clear()
        self._lead.done("clear_pages")

    def resize(self, limit_bytes: int) -> None:
        super().resize(limit_bytes)
        self._lead.done("resize_pages", limit_bytes)


class LeadingNetwork:
    """Rank 0's share of the network. All but its forward pass is its own."""

    def __init__(self, lead: Lead, share: LoadedModel, whole: Whole) -> None:
        self._lead, self._network = lead, share.network
        self._shifts = partial(whole.shifts, share)
        trunk = taps_of(share.network)
        if trunk is not None:
            vars(trunk)["tap"] = partial(self._tap, trunk.tap)
        self._begun: tuple[Step, Inputs] | None = None

    def encode(self, prompt: Inputs, step: Step, memory: LayerMemory) -> None:
        """See `runtime.models.family.Reader`. It is told with the step, and read when that is computed."""
        del memory
        self._begun = step, prompt

    def __call__(self, step: Step, memory: LayerMemory) -> mx.array:
        begun, self._begun = self._begun, None
        prompt = None if begun is None or begun[0] is not step else begun[1]
        self._lead.forward(step, memory, None if prompt is None else prompt.ids)
        try:
            if prompt is not None:
                read_first(self._lead.group, self._network, prompt, step, memory)
            hidden = self._network(step, memory)
            memory.follow(step)
        except Exception as error:
            raise self._lead.group.lose(f"rank 0 could not do its part: {error}") from error
        return hidden

    def _tap(self, tap: Callable[[Sequence[int]], None], layers: Sequence[int]) -> None:
        """Whoever has these layers sends what leaves them (`runtime.ranks.stream`)."""
        tap(layers)
        self._lead.done("tap", list(layers))

    @cached_property
    def shifts(self) -> Sequence[Rotate | None]:
        """Of all layers."""
        return self._shifts()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)
