"""The bytes that layer memory may hold. One budget is shared by all layers of a model."""

from runtime.errors import CacheFull
from runtime.records import dataclass


@dataclass(slots=True)
class Budget:
    """Every buffer is claimed here before it is allocated, so a refusal costs nothing."""

    limit_bytes: int | None = None
    """None: no limit."""
    held_bytes: int = 0
    """What live buffers take now."""

    def fits(self, more_bytes: int) -> bool:
        return self.limit_bytes is None or self.held_bytes + more_bytes <= self.limit_bytes

    def claim(self, more_bytes: int) -> None:
        """Count `more_bytes` (negative to give back). CacheFull when they would pass the limit."""
        if more_bytes > 0 and self.limit_bytes is not None and not self.fits(more_bytes):
            raise CacheFull(self.held_bytes + more_bytes, self.limit_bytes)
        self.held_bytes += more_bytes
