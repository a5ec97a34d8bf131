"""Several answers to one request, as one sequence of what their steps bring."""

from collections.abc import Sequence

from modelkit.answers.generation import Finish
from modelkit.answers.streams import GenerationStream
from modelkit.output.events import Event

Batch = tuple[int, Sequence[Event | Finish]]
"""The number of a row, and what one step of the engine brought it."""


class Rows:
    """Of one request, by their numbers. On the event loop's thread, which is told by `waking.following`."""

    def __init__(self, streams: Sequence[GenerationStream]) -> None:
        self.fault: Exception | None = None
        """Of the first row that failed. It ends alone; this is to be raised once the others have ended."""
        self._left = dict(enumerate(streams))

    @property
    def ended(self) -> bool:
        """Has all been taken?"""
        return not self._left

    def take(self) -> list[Batch]:
        """What has come since, without waiting; [] for nothing."""
        batches: list[Batch] = []
        for row, stream in [*self._left.items()]:
            try:
                if events := stream.take_events():
                    batches.append((row, events))
                over = stream.ended
            except Exception as error:  # noqa: BLE001 -- raised by who reads
                self.fault = self.fault or error
                over = True
            if over:
                del self._left[row]
        return batches
