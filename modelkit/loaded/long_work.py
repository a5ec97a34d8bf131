"""What is asked of a model, is not an answer, and takes long: embedding, and scoring a text.

It is done on the engine's thread, in pieces between its steps: it waits for no answer to end, and no answer
waits longer for it than for a piece of a prompt (`runtime.engine.pace`). One piece at a time is under way
for a model, however many callers there are. Where nobody waits for it any more, the next piece is not begun.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from modelkit.interest import check_wanted
from runtime.engine.engine import Engine
from runtime.loaded import LoadedModel

T = TypeVar("T")


class LongWork:
    """That of one model, of all its callers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn, self._pace = threading.Lock(), engine.pace()

    def piece(self, function: Callable[[LoadedModel], T]) -> T:
        """What the function gives, on the engine's thread. Raises what it raises, ModelkitError where nobody
        waits for it, ThreadEnded where the engine has ended.
        """
        with self._turn:
            check_wanted()
            return self._engine.call(function)

    def read(self, reading: Callable[[int], int], most: int) -> None:
        """A piece in which a text is read. reading: given how many tokens it may read, `most` or fewer, gives
        how many it has read, padding included. Raises as `piece` does.
        """

        def timed(_: LoadedModel) -> None:
            began_s = time.monotonic()
            tokens = reading(self.allowed(most))
            self._pace.read(tokens, time.monotonic() - began_s, wrote=False)

        self.piece(timed)

    def allowed(self, most: int) -> int:
        """Tokens that a piece may have now, `most` or fewer: as many as answers hardly notice. Where bits
        depend on how a text is cut, what others do makes no difference.
        """
        if not self._pace.steady:
            return most
        others = self._engine.activity
        return min(most, self._pace.beside if others.running or others.waiting else self._pace.alone)
