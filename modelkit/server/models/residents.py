"""Which models stay in memory and which may come: one pure decision from what is known of them.

A model takes its weights and what is reserved for conversations for as long as it is in memory, and beside
that what it may keep of earlier prompts, which can change at any time. All of them together never take more
than the limit. Earlier prompts leave room for a conversation that is longer than most, up to half of what
there is for both: what is kept can be computed again, a request that is refused gets no answer.

Who waits for room gets it in this order, as far as it is needed: earlier prompts are kept shorter, of all
models; then models leave that nobody uses, the one used least recently first, those that are to stay for ever
last of all. A model in use never leaves. Room that becomes free belongs to whoever has waited longest: a
younger one passes it only into room that is free as it is, and only for PATIENCE_S. So everybody who waits
comes in, or is refused once the time-out has passed, and then hears what is in the way.

Nothing here knows of threads or clocks. `decide` is asked again whenever something has changed, and says at
which time it wants to be asked in any case.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from modelkit.units import size
from runtime.records import dataclass

PATIENCE_S = 30.0

State = Literal["waiting", "loading", "ready", "leaving"]


@dataclass(frozen=True, slots=True)
class Resident:
    """A model that is in memory, is on its way there, or waits for room."""

    key: int
    name: str
    state: State
    fixed_bytes: int
    """What it takes for as long as it is in memory: weights, draft, adapters, conversations."""
    beyond_bytes: int = 0
    """What one conversation of its whole context would take beyond that."""
    prefix_wish_bytes: int = 0
    """What it would like to keep of earlier prompts."""
    prefix_bytes: int = 0
    """What it may take for that now; 0 for one that waits."""
    prefix_asked_bytes: int = 0
    """What it was told to keep at most. It may take more for a while, where running requests need that."""
    leases: int = 0
    """Requests that use it, or wait for it."""
    used_s: float = 0.0
    """When it was last used; for one that waits, since when."""
    expires_s: float = math.inf
    """When it leaves unless it is used."""
    outdated: bool = False
    """Nobody will ask for it any more: its name stands for another package, or its engine has died."""

    @property
    def bytes(self) -> int:
        return self.fixed_bytes + self.prefix_bytes

    @property
    def idle(self) -> bool:
        """May it leave?"""
        return self.state == "ready" and not self.leases


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done now."""

    leave: tuple[int, ...] = ()
    """Keys of models to be closed."""
    evict: tuple[int, ...] = ()
    """Those of them that leave before their time, to make room."""
    keep: tuple[tuple[int, int], ...] = ()
    """(key, bytes): models that are to keep at most so much of earlier prompts."""
    load: tuple[tuple[int, int], ...] = ()
    """(key, bytes): models to be loaded, and what each may keep of earlier prompts."""
    refuse: tuple[tuple[int, str], ...] = ()
    """(key, sentence): models that waited for too long, and what is in the way."""
    again_s: float = math.inf
    """When to decide again if nothing changes."""


def decide(
    residents: Sequence[Resident], limit_bytes: int, now_s: float, patience_s: float = math.inf
) -> Decision:
    """patience_s: how long a model may wait for room."""
    return _Deciding(residents, limit_bytes, now_s, patience_s).decision()


class _Deciding:
    """The models as they will be once what was decided so far is done."""

    def __init__(
        self, residents: Sequence[Resident], limit_bytes: int, now_s: float, patience_s: float
    ) -> None:
        self.limit_bytes, self.now_s, self.patience_s = limit_bytes, now_s, patience_s
        held = [one for one in residents if one.state != "waiting"]
        over = {one.key for one in held if one.idle and (one.outdated or one.expires_s <= now_s)}
        self.taken_bytes = sum(one.bytes for one in held)
        """What is taken at this moment, by those that leave too, and by those that are let in."""
        self.leave = [one.key for one in held if one.key in over]
        self.evict: list[int] = []
        self.staying = {one.key: one for one in held if one.state != "leaving" and one.key not in over}
        waiting = sorted((one for one in residents if one.state == "waiting"), key=_age)
        self.late = [one for one in waiting if self._too_late(one)]
        self.waiting = [one for one in waiting if one not in self.late]
        self.load: list[tuple[int, int]] = []

    def decision(self) -> Decision:
        refused = [one for one in self.late if not self._slip_in(one)]
        first_blocked: Resident | None = None
        for one in self.waiting:
            if first_blocked is None:
                first_blocked = None if self._make_room(one) else one
            elif self.now_s < first_blocked.used_s + PATIENCE_S:
                self._slip_in(one)
        return Decision(
            leave=tuple(self.leave),
            evict=tuple(self.evict),
            keep=self._kept(),
            load=tuple(self.load),
            refuse=tuple((one.key, self._in_the_way(one)) for one in refused),
            again_s=self._again_s(),
        )

    def _make_room(self, one: Resident) -> bool:
        """Decide what has to go for it, and let it in where that has gone. False where it cannot come."""
        short = self._fixed_bytes() + one.fixed_bytes - self.limit_bytes
        victims = _fewest(self._idle(), short)
        if victims is None:
            return False
        for victim in victims:
            del self.staying[victim.key]
            self.leave.append(victim.key)
            self.evict.append(victim.key)
        self.staying[one.key] = replace(one, prefix_asked_bytes=one.prefix_wish_bytes)
        room = self.limit_bytes - self.taken_bytes - one.fixed_bytes
        share = self._shares()[one.key]
        if room >= share or (room >= 0 and self._settled()):
            self._admit(one, min(share, room))
        return True

    def _slip_in(self, one: Resident) -> bool:
        """Let it in if nothing has to change for it."""
        room = self.limit_bytes - self.taken_bytes - one.fixed_bytes
        if room >= 0:
            self._admit(one, min(room, one.prefix_wish_bytes))
        return room >= 0

    def _too_late(self, one: Resident) -> bool:
        """Has it waited for too long, or would it wait in vain?"""
        return one.used_s + self.patience_s <= self.now_s or one.fixed_bytes > self.limit_bytes

    def _admit(self, one: Resident, prefix_bytes: int) -> None:
        self.load.append((one.key, prefix_bytes))
        self.taken_bytes += one.fixed_bytes + prefix_bytes
        self.staying[one.key] = replace(
            one, state="loading", prefix_bytes=prefix_bytes, prefix_asked_bytes=prefix_bytes
        )

    def _settled(self) -> bool:
        """Is nothing on its way that would give more room?"""
        staying = sum(one.bytes for one in self.staying.values() if one.state != "waiting")
        return not self._kept() and self.taken_bytes <= staying

    def _kept(self) -> tuple[tuple[int, int], ...]:
        """Limits of earlier prompts that change. They grow only where nobody wants the room, and all that
        was to be given back has been.
        """
        shares, staying = self._shares(), list(self.staying.values())
        ready = [one for one in staying if one.state == "ready"]
        less = tuple((one.key, shares[one.key]) for one in ready if shares[one.key] < one.prefix_asked_bytes)
        quiet = not self.waiting and self.taken_bytes <= sum(one.bytes for one in staying)
        if less or not quiet or any(one.prefix_bytes > one.prefix_asked_bytes for one in ready):
            return less
        return tuple((one.key, shares[one.key]) for one in ready if shares[one.key] > one.prefix_asked_bytes)

    def _shares(self) -> dict[int, int]:
        """What each may keep of earlier prompts: as equal as the wishes and long conversations allow. Those
        that are being loaded have been promised theirs.
        """
        promised = sum(one.prefix_bytes for one in self.staying.values() if one.state == "loading")
        room = max(self.limit_bytes - self._fixed_bytes() - promised, 0)
        room -= min(sum(one.beyond_bytes for one in self.staying.values()), room // 2)
        wishing = sorted(
            (one for one in self.staying.values() if one.state != "loading"),
            key=lambda one: one.prefix_wish_bytes,
        )
        shares: dict[int, int] = {}
        for place, one in enumerate(wishing):
            shares[one.key] = min(one.prefix_wish_bytes, room // (len(wishing) - place))
            room -= shares[one.key]
        return shares

    def _fixed_bytes(self) -> int:
        return sum(one.fixed_bytes for one in self.staying.values())

    def _idle(self) -> list[Resident]:
        """Those that may leave, the one to leave first in front."""
        idle = [one for one in self.staying.values() if one.idle]
        return sorted(idle, key=lambda one: (one.expires_s == math.inf, one.used_s, -one.fixed_bytes))

    def _in_the_way(self, one: Resident) -> str:
        if one.fixed_bytes > self.limit_bytes:  # whoever else is there
            return (
                f"there is no room for {one.name}: it takes {size(one.fixed_bytes)}, and all models together "
                f"may take {size(self.limit_bytes)}"
            )
        held = sorted((other for other in self.staying.values()), key=lambda other: -other.fixed_bytes)
        names = ", ".join(f"{other.name} ({size(other.fixed_bytes)}{_why(other)})" for other in held)
        return (
            f"there is no room for {one.name}: it takes {size(one.fixed_bytes)}, models may take "
            f"{size(self.limit_bytes)} together, and these stay: {names or 'models that are leaving'}"
        )

    def _again_s(self) -> float:
        times = [one.expires_s for one in self.staying.values() if one.idle]
        times += [one.used_s + self.patience_s for one in self.waiting]
        return min(times, default=math.inf)


def _fewest(idle: Iterable[Resident], short_bytes: int) -> list[Resident] | None:
    """The first of them that together give so much, without those that are not needed then; None where all
    of them give too little.
    """
    chosen: list[Resident] = []
    for one in idle:
        if short_bytes <= 0:
            break
        chosen.append(one)
        short_bytes -= one.fixed_bytes
    if short_bytes > 0:
        return None
    for one in reversed(chosen[:-1]):
        if short_bytes + one.fixed_bytes <= 0:
            chosen.remove(one)
            short_bytes += one.fixed_bytes
    return chosen


def _age(one: Resident) -> tuple[float, int]:
    return one.used_s, one.key


def _why(one: Resident) -> str:
    if one.state != "ready":
        return ", being loaded"
    return ", in use" if one.leases else ""
