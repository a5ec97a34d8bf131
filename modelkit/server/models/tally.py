"""What the pool has done since it started, for `/metrics`. Names are those of stored packages."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from modelkit.server.metrics import Labels
from runtime.records import dataclass

Left = Literal["idle", "room", "replaced", "stopped", "failed"]
Why = Literal["error", "too_large", "no_room"]


@dataclass(slots=True)
class Tally:
    """On the event loop's thread only."""

    failures: Counter[tuple[str, Why]] = field(default_factory=Counter[tuple[str, Why]])
    """Models that were asked for and did not come. "error": loading raised. "too_large": more than all models
    may take. "no_room": none became free in time.
    """
    evictions: Counter[str] = field(default_factory=Counter[str])
    """Models that left before their time, to make room for others."""
    departures: Counter[tuple[str, Left]] = field(default_factory=Counter[tuple[str, Left]])
    """Models that left memory. "idle": their time was over. "room": as above. "replaced": their name stands
    for another package, or for none. "stopped": somebody asked for it. "failed": their engine has died.
    """

    def counts(self) -> Mapping[str, Mapping[Labels, int]]:
        """By the names of metrics."""
        failures = {(("model", name), ("reason", why)): count for (name, why), count in self.failures.items()}
        evictions: dict[Labels, int] = {(("model", name),): count for name, count in self.evictions.items()}
        departures = {
            (("model", name), ("reason", why)): count for (name, why), count in self.departures.items()
        }
        return {
            "modelkit_load_failures_total": failures,
            "modelkit_evictions_total": evictions,
            "modelkit_departures_total": departures,
        }
