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
    held_bytes: int = 0
    """What live buffers take now."""
    _givers: list[WeakMethod[Give]] = field(default_factory=list[WeakMethod[Give]])

    def ask(self, give: Give) -> None:
        """Before a claim is refused, this method gives back what its object holds and does not need."""
        self._givers.append(WeakMethod(give))

    def fits(self, more_bytes: int) -> bool:
        return self.limit_bytes is None or self.held_bytes + more_bytes <= self.limit_bytes

    def make_room(self, more_bytes: int) -> bool:
        """Do so many fit, once all have given back what they do not need?"""
        if not self.fits(more_bytes):
            for giver in self._givers:
                if (give := giver()) is not None:
                    give()
        return self.fits(more_bytes)

    def claim(self, more_bytes: int) -> None:
        """Count `more_bytes` (negative to give back). CacheFull when they would pass the limit."""
        if more_bytes > 0 and self.limit_bytes is not None and not self.make_room(more_bytes):
            raise CacheFull(self.held_bytes + more_bytes, self.limit_bytes)
        self.held_bytes += more_bytes
