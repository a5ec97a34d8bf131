"""What a dialect asks of a model, and what was started for it: values."""

from collections.abc import Callable

from modelkit.answers.streams import GenerationStream
from modelkit.model import Model
from modelkit.server.models.turns import Priority
from modelkit.server.trace import Trace
from runtime.records import dataclass

Start = Callable[[Model, int], GenerationStream]
"""Starts the row of that number (from 0) with stream=True. Called in a worker thread."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a dialect has read."""

    model: str
    """Its name, as the client wrote it, adapters included (`chosen`)."""
    start: Start
    rows: int = 1
    """How many answers (`n`)."""
    keep_alive: float | None = None
    """As for the pool's `acquire`."""
    priority: Priority | None = None
    """Who goes first where many wait; None: as the header X-Modelkit-Priority says."""
    scores: bool = False
    """To start a row takes as long as an answer does: the model reads the prompt for it."""


@dataclass(frozen=True, slots=True)
class Started:
    """What a formatter may want to know of the request."""

    model: Model
    streams: tuple[GenerationStream, ...]
    """By the number of the row."""
    trace: Trace
    created_s: float
    """Seconds since 1970."""
    digest: str = ""
    """Of the model's package."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the request could not be enforced, in all rows."""
        return tuple(dict.fromkeys(note for one in self.streams for note in one.begun.notes))
