"""One model on its way into memory, on a thread of its own.

The thread reads headers and says what the model will take (`foreseen`), waits until it is given room
(`grant`), reads the weights, and hands over what came of it (`done`). Until then it can be told not to go on
(`refuse`): it ends before the next tensor. Nothing of it ever waits on the event loop's thread, and a load
that fails or is not wanted leaves nothing behind.

`foreseen` and `done` are called on the event loop's thread.
"""

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from modelkit.errors import ModelClosed
from modelkit.memory import Memory
from modelkit.model import Model
from modelkit.server.models.model_source import FoundModel, ModelSource
from runtime import device, streams


class _BrokenOff(Exception):
    """Nobody wants the model any more."""


class Loading:
    """Starts at once."""

    def __init__(
        self,
        source: ModelSource,
        found: FoundModel,
        foreseen: Callable[[Memory], None],
        done: Callable[[Model | BaseException], None],
    ) -> None:
        self._source, self._found, self._foreseen, self._done = source, found, foreseen, done
        self._loop = asyncio.get_running_loop()
        self._room: Future[int] = Future()
        self._refused = False
        self.thread = threading.Thread(target=self._run, name=f"modelkit-load-{found.name}", daemon=True)
        self.thread.start()

    def grant(self, prefix_bytes: int) -> None:
        """There is room, with so much for earlier prompts."""
        if not self._room.done():
            self._room.set_result(prefix_bytes)

    def refuse(self, error: BaseException) -> None:
        """Do not go on, unless all of it is read."""
        self._refused = True
        if not self._room.done():
            self._room.set_exception(error)

    def memory(self, memory: Memory, shortage: str | None) -> None:
        """For the source: its headers are read."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._foreseen, memory)
        self._room.result()

    def weights(self, nbytes: int) -> None:
        """For the source: a tensor is read."""
        if self._refused:
            raise _BrokenOff

    def _run(self) -> None:
        with streams.reused_stream():
            self._load()

    def _load(self) -> None:
        try:
            outcome: Model | BaseException = self._loaded()
        except _BrokenOff:
            # Not this one: the frames that it has passed hold what was read of the weights.
            outcome = ModelClosed(f"the load of {self._found.name} was broken off")
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
        model = self._source.load(self._found, self)
        if self._room.done() and self._room.result() < model.memory.prefix_bytes:
            try:
                model.limit_prefixes(self._room.result())
            except BaseException:
                model.close()
                raise
        return model
