"""The bytes that layer memory may hold. One budget is shared by all layers of a model."""

from collections.abc import Callable
from dataclasses import field
from weakref import WeakMethod

from runtime.errors import CacheFull
from runtime.records import dataclass

Give = Callable[[], None]


@dataclass(slots=True)
class Budget:
    """Every buffer is claimed here before it is allocated, so a refusal costs nothing."""

    limit_bytes: int | None = None
    """None: no limit."""
    free: Callable[[], int] | None = None
    """How many bytes more there is memory for, whatever the limit; None: nobody asks."""
    because: Callable[[], str] = str
    """Why there is no more than that, for a refusal; "" where there is nothing to say."""
    held_bytes: int = 0
    """What live buffers take now."""
    _givers: list[WeakMethod[Give]] = field(default_factory=list[WeakMethod[Give]])

    def ask(self, give: Give) -> None:
        """Before a claim is refused, this method gives back what its object holds and does not need."""
        self._givers.append(WeakMethod(give))

    @property
    def room_bytes(self) -> int | None:
        """What may be claimed now, below 0 where too much is held; None: whatever is asked."""
        left = [] if self.limit_bytes is None else [self.limit_bytes - self.held_bytes]
        if self.free is not None:
            left.append(self.free())
        return min(left, default=None)

    def fits(self, more_bytes: int) -> bool:
        room = self.room_bytes
        return room is None or more_bytes <= room

    def make_room(self, more_bytes: int) -> bool:
        """Do so many fit, once all have given back what they do not need?"""
        if not self.fits(more_bytes):
            for giver in self._givers:
                if (give := giver()) is not None:
                    give()
        return self.fits(more_bytes)

    def claim(self, more_bytes: int) -> None:
        """Count `more_bytes` (negative to give back). CacheFull when there is not so much room."""
        if more_bytes > 0 and not self.make_room(more_bytes):
            room_bytes = self.room_bytes or 0
            raise CacheFull(self.held_bytes + more_bytes, self.held_bytes + room_bytes, self.because())
        self.held_bytes += more_bytes
