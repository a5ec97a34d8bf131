"""Several answers to one request, as one sequence of what their steps bring."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from modelkit.generation import Finish
from modelkit.output.events import Event
from modelkit.streams import GenerationStream

Batch = tuple[int, Sequence[Event | Finish]]
"""The number of the row, and what one step of the engine brought it."""


async def merged(streams: Sequence[GenerationStream]) -> AsyncGenerator[Batch]:
    """What all rows give, in the order in which it comes."""
    if len(streams) == 1:
        async with aclosing(streams[0].events().batches()) as batches:
            async for events in batches:
                yield 0, events
        return
    given: asyncio.Queue[Batch | None] = asyncio.Queue(maxsize=len(streams))
    readers = [asyncio.ensure_future(_read(row, one, given)) for row, one in enumerate(streams)]
    try:
        left = len(readers)
        while left:
            batch = await given.get()
            if batch is None:
                left -= 1
            else:
                yield batch
        for reader in readers:
            reader.result()
    finally:
        for reader in readers:
            reader.cancel()


async def _read(row: int, stream: GenerationStream, into: "asyncio.Queue[Batch | None]") -> None:
    try:
        async for events in stream.events().batches():
            await into.put((row, events))
    finally:
        await into.put(None)
