"""What an engine is doing, for people who watch it."""

from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Activity:
    """Counts of one moment, read while the engine goes on."""

    running: int
    """Sequences that have a place."""
    waiting: int
    """Requests that wait for one."""
    places: int
    """How many sequences there can be at once."""
    layer_bytes: int
    """What the layers' memory of those takes, that of drafters included."""
    prefix_bytes: int
    """What is kept of earlier sequences, by target and drafters together."""
    prefix_limit_bytes: int
    """How much that may be."""
    drafters: tuple[str, ...]
    """Those that there are."""
