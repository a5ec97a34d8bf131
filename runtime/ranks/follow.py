"""The side of ranks above 0: they do what rank 0 has decided, each with its own share and its own memory."""

import logging
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import mlx.core as mx

from runtime import device
from runtime.cache.build import build_memory
from runtime.cache.disk_pages import DiskPages, Reading, Stored, insert_pages, path_to
from runtime.cache.layout import reads_prompt
from runtime.cache.memory import LayerMemory
from runtime.cache.page_folder import PrefixFolder
from runtime.cache.prefix import PrefixStore
from runtime.cache.prompts import KeptPrompts, of_prompts
from runtime.cache.protocol import Rotate
from runtime.cache.restore import Restoring
from runtime.cache.sharing import Sharing
from runtime.errors import RankLost
from runtime.loaded import LoadedModel
from runtime.nn.adapters.rows import RowAdapters
from runtime.nn.adapters.stacks import AdapterStacks
from runtime.quoting import quoted
from runtime.ranks.decision import Action, Decision, Forward, Members, keys_from_json
from runtime.ranks.free_room import said_of
from runtime.ranks.group import Group
from runtime.ranks.memories import OWN, FollowingMemory, read_first
from runtime.ranks.stage import kept_alone
from runtime.ranks.whole_model import Whole
from runtime.step import Inputs, Step
from runtime.trunks.taps import taps_of

T = TypeVar("T")

_SOON_S = 0.05
"""So long after a step was begun the next one is told, where rank 0 is ahead."""
_KNOWN = 64
"""For so many sets of rows, what their steps need of adapters is kept."""

log = logging.getLogger(__name__)


class Follower:
    """Of one model. share: what this rank has of it. folder: where it keeps its part of pages on disk; None:
    nowhere. ranks_here: how many share this machine, this one included.
    """

    def __init__(
        self, group: Group, share: LoadedModel, folder: PrefixFolder | None = None, ranks_here: int = 1
    ) -> None:
        self._group, self._model, self._folder = group, share, folder
        self._ranks_here = ranks_here
        self._disk: DiskPages | None = None
        self._lane = group.lane()
        self._flying: list[mx.array] = []
        self._whole = Whole.of(share)
        self._memories: dict[int, FollowingMemory] = {}
        self._pages: Sharing[int] | KeptPrompts | None = None
        self._given: list[Hashable] | None = None
        self._keys: dict[int, list[Hashable]] = {}
        self._restoring: dict[int, Restoring] = {}
        self._fetching: Reading | None = None
        self._stacks = AdapterStacks(share.adapters.values())
        self._known: dict[Members, RowAdapters] = {}

    def run(self) -> None:
        """Until rank 0 closes the model. RankLost where it is gone, or where this rank cannot do its part."""
        self._group.keep_apart()
        try:
            while self.turn():
                pass
        finally:
            self._group.let_go()
        if self._disk is not None:
            self._disk.close()

    def turn(self) -> bool:
        """Do what is decided next; False for the end."""
        came = False
        if self._flying and self._lane is not None:
            came = self._lane.comes(_SOON_S)
            if not came:  # nobody may sleep without end beside what others owe to it
                self._able(lambda: self._land([]))
        said = self._group.hear(within_s=None, by=self._lane, came=came)
        return self._able(lambda: self._follow(Decision.from_bytes(said)))

    def _follow(self, decision: Decision) -> bool:
        for action in decision.actions:
            self._do(action)
        if decision.forward is not None:
            self._forward(decision.forward)
        elif decision.ends:
            self._land([])
        return not decision.ends

    def _able(self, do: Callable[[], T]) -> T:
        """Do it, waiting for others no longer than one may; whoever cannot do its part ends the group."""
        try:
            with self._group.bounded():
                return do()
        except RankLost:
            raise
        except Exception as error:
            raise self._group.lose(f"rank {self._group.rank} could not do its part: {error!r}") from error

    def _forward(self, forward: Forward) -> None:
        prompts = self._group.spread(None, forward.of_prompts) if forward.source else None
        ids = self._group.spread(None, forward.shape)
        step = forward.step(Inputs(ids), self._adapters(forward.adapters))
        its = self._memories[forward.memory]
        if self._given is not None:
            self._give(self._given, step)
        if prompts is not None:
            read_first(self._group, self._model.network, Inputs(prompts), step, its.memory)
        hidden = self._model.network(step, its.memory)
        its.follow(step)
        alone = bool(kept_alone(step, its.memory))
        if step.kept_only:
            its.memory.evaluate()  # and nothing else: what nobody asks for is not computed
        # But for what is on its way by itself: whoever shares all layers is past its sums then.
        self._land([] if alone or (step.kept_only and self._lane is None) else [hidden])

    def _land(self, flying: list[mx.array]) -> None:
        """Wait for the step before; this one is on its way meanwhile, where the next can be heard of then."""
        before, self._flying = self._flying, flying
        mx.eval(before if self._lane is not None else flying)

    def _adapters(self, members: Members | None) -> RowAdapters | None:
        """Those of a step, as rank 0 counts them: both had them in one order."""
        if members is None:
            return None
        known = self._known.get(members)
        if known is None:
            if len(self._known) >= _KNOWN:
                del self._known[next(iter(self._known))]
            adapters = self._stacks.adapters
            rows = [tuple((adapters[place], scale) for place, scale in row) for row in members]
            known = self._known[members] = RowAdapters(self._stacks, rows)
        return known

    def _do(self, action: Action) -> None:
        """See runtime.ranks.lead, where each has the same name."""
        match action:
            case ("remember", kept_format):
                self._remember(kept_format)
            case ("tap", layers):
                trunk = taps_of(self._model.network)
                assert trunk is not None
                trunk.tap(layers)
            case ("memory", number, *its):
                self._memories[number].do(tuple(its))
            case ("open", number, rows, kept_format, grain):
                self._memories[number] = self._built(kept_format, rows=rows, grain=grain)
            case ("drop", number):
                del self._memories[number]
            case ("room", spare_bytes):
                free_bytes = device.available_bytes() // self._ranks_here
                self._group.counts(*said_of(self._whole, free_bytes, spare_bytes))
            case _:
                self._do_with_pages(action)

    @property
    def memory(self) -> LayerMemory:
        """The engine's."""
        return self._memories[OWN].memory

    def _built(self, kept_format: str | None, **options: Any) -> FollowingMemory:
        memory = build_memory(
            self._whole.layout,
            dtype=self._model.dtype,
            kept_format=kept_format,
            elsewhere=self._whole.elsewhere,
            **options,
        )
        return FollowingMemory(memory, lambda: self._shifts)

    @cached_property
    def _shifts(self) -> Sequence[Rotate | None]:
        return self._whole.shifts(self._model)

    def _remember(self, kept_format: str | None) -> None:
        self._memories[OWN] = self._built(kept_format)
        if self._folder is not None:
            self._disk = self._opened(self._folder, kept_format)

    def _opened(self, folder: PrefixFolder, kept_format: str | None) -> DiskPages | None:
        """None, which is said, where this machine cannot keep pages: then nobody finds any again."""
        try:
            layout, elsewhere = self.memory.layout, self.memory.elsewhere
            if reads_prompt(layout):
                return DiskPages(folder, of_prompts(layout), self._model.dtype, elsewhere=elsewhere)
            return DiskPages(folder, layout, self._model.dtype, kept_format, elsewhere)
        except OSError as error:
            log.warning("prefixes are not kept in %s: %s", folder.path, error.strerror or error)
            return None

    def _do_with_pages(self, action: Action) -> None:
        match action:
            case ("keep", limit_bytes):
                self._pages = self._keeping(limit_bytes)
            case ("give", keys):
                self._given = keys_from_json(keys)
            case ("keep_prompt", place, keys):
                self._keep_prompt(place, keys_from_json(keys))
            case ("begin", user, place, keys, offset):
                self._begin(user, place, keys_from_json(keys), offset)
            case ("put_back", user, place, until):
                restoring = self._restoring[user]
                restoring.put_back(place, until)
                self.memory.evaluate()
                if restoring.over:
                    del self._restoring[user]
            case ("page", user, place, length, more):
                keys = self._keys[user]
                keys += keys_from_json(more)
                node = self._sharing.page(user, place, keys[:length])
                if node is not None and self._disk is not None:
                    self._disk.save(keys[:length], path_to(node, length))
            case ("fetch", keys, ranges):
                self._fetch(keys_from_json(keys), [(start, stop) for start, stop in ranges])
            case ("read", count):
                self._read(count)
            case ("forget", user):
                self._sharing.forget(user)
                self._restoring.pop(user, None)
                del self._keys[user]
            case ("clear_pages",):
                self._kept.clear()
            case ("resize_pages", limit_bytes):
                self._kept.resize(limit_bytes)
            case _:
                raise ValueError(f"nobody here knows how to do {quoted(action)}")

    def _keeping(self, limit_bytes: int) -> Sharing[int] | KeptPrompts:
        layout = self._whole.layout
        if reads_prompt(layout):
            return KeptPrompts(self.memory, PrefixStore(of_prompts(layout), limit_bytes))
        return Sharing(self.memory, PrefixStore(layout, limit_bytes), spacing=1)

    @property
    def _kept(self) -> Sharing[int] | KeptPrompts:
        assert self._pages is not None
        return self._pages

    @property
    def _sharing(self) -> Sharing[int]:
        assert isinstance(self._pages, Sharing)
        return self._pages

    @property
    def _prompts(self) -> KeptPrompts:
        assert isinstance(self._pages, KeptPrompts)
        return self._pages

    def _give(self, keys: list[Hashable], step: Step) -> None:
        self._given = None
        match = self._prompts.find(keys)
        if match is None:
            raise ValueError(f"it does not know a prompt of {len(keys):,} tokens that rank 0 knows")
        self._prompts.give(step, keys, match)

    def _keep_prompt(self, place: int, keys: list[Hashable]) -> None:
        page = self._prompts.keep(place, keys)
        if page is not None and self._disk is not None:
            self._disk.save(keys, [Stored(0, len(keys), page)])

    def _fetch(self, keys: list[Hashable], ranges: list[tuple[int, int]]) -> None:
        """Read pages beside the steps to come, as rank 0 does meanwhile. No ranges: nobody wants them."""
        if self._fetching is not None:
            self._fetching.wanted = False
        self._fetching = None
        if self._disk is not None and ranges:
            self._fetching = self._disk.look_up(keys, ranges)
            self._disk.begin(self._fetching)

    def _read(self, count: int) -> None:
        """Keep of the pages that were fetched as many as all have. They say so of each: who still reads is
        waited for.
        """
        fetched, self._fetching = self._fetching, None
        arriving = iter(()) if fetched is None else fetched.arriving()
        pages: list[Stored] = []
        for _ in range(count):
            page = next(arriving, None)
            if not self._group.least(int(page is not None)):
                break
            assert page is not None
            pages.append(page)
        if fetched is not None:
            fetched.wanted = False
            insert_pages(self._kept.store, fetched.keys, pages)

    def _begin(self, user: int, place: int, keys: list[Hashable], offset: int) -> None:
        match = self._sharing.store.lookup(keys[: offset + 1])  # rank 0 may begin before what it could
        if match.offset != offset:
            raise ValueError(f"it knows {match.offset:,} tokens of a prompt of which rank 0 knows {offset:,}")
        self._keys[user] = keys
        restoring = self._sharing.enter(user, place, keys, match)
        if not restoring.over:
            self._restoring[user] = restoring
