"""Several answers to one request, as one sequence of what their steps bring."""

from collections.abc import AsyncGenerator, Sequence

from modelkit.generation import Finish
from modelkit.output.events import Event
from modelkit.streams import GenerationStream
from modelkit.waking import listening

Batch = tuple[int, Sequence[Event | Finish]]
"""The number of a row, and what one step of the engine brought it."""


async def merged(streams: Sequence[GenerationStream]) -> AsyncGenerator[list[Batch]]:
    """What each step brought all rows, never none. A row that fails ends alone; what it failed with is raised
    once the others have ended.
    """
    left, faults = dict(enumerate(streams)), list[Exception]()
    with listening(*(one.source for one in streams)) as news:
        while left:
            news.clear()
            batches: list[Batch] = []
            for row, stream in list(left.items()):
                try:
                    if events := stream.take_events():
                        batches.append((row, events))
                    over = stream.ended
                except Exception as error:  # noqa: BLE001 -- raised below
                    faults.append(error)
                    over = True
                if over:
                    del left[row]
            if batches:
                yield batches
            if left:
                await news.wait()
    if faults:
        raise faults[0]
