"""One model on its way into memory, on a thread of its own.

The thread reads headers and says what the model will take (`foreseen`), waits until it is given room
(`grant`) or told not to go on (`refuse`), reads the weights, and hands over what came of it (`done`). Nothing
of it ever waits on the event loop's thread, and a load that fails or is not wanted leaves nothing behind.

`foreseen` and `done` are called on the event loop's thread.
"""

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from modelkit.memory import Memory
from modelkit.model import Model
from modelkit.server.stored import Found, Source
from runtime import device


class Loading:
    """Starts at once."""

    def __init__(
        self,
        source: Source,
        found: Found,
        foreseen: Callable[[Memory], None],
        done: Callable[[Model | BaseException], None],
    ) -> None:
        self._source, self._found, self._foreseen, self._done = source, found, foreseen, done
        self._loop = asyncio.get_running_loop()
        self._room: Future[int] = Future()
        self.thread = threading.Thread(target=self._run, name=f"modelkit-load-{found.name}", daemon=True)
        self.thread.start()

    def grant(self, prefix_bytes: int) -> None:
        """There is room, with so much for earlier prompts."""
        if not self._room.done():
            self._room.set_result(prefix_bytes)

    def refuse(self, error: BaseException) -> None:
        """Do not go on, if no weight is read yet."""
        if not self._room.done():
            self._room.set_exception(error)

    def _run(self) -> None:
        try:
            outcome: Model | BaseException = self._loaded()
        except BaseException as error:  # noqa: BLE001 -- handed to whoever waits for the model
            outcome = error
        if isinstance(outcome, BaseException):
            gc.collect()  # what was read of the weights
            device.give_back()
        try:
            self._loop.call_soon_threadsafe(self._done, outcome)
        except RuntimeError:  # the loop is closed: nobody will ever use it
            if not isinstance(outcome, BaseException):
                outcome.close()

    def _loaded(self) -> Model:
        model = self._source.load(self._found, self._on_memory)
        if self._room.done() and self._room.result() < model.memory.prefix_bytes:
            try:
                model.limit_prefixes(self._room.result())
            except BaseException:
                model.close()
                raise
        return model

    def _on_memory(self, memory: Memory, _shortage: str | None) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._foreseen, memory)
        self._room.result()
