"""What is asked of a model, is not an answer, and takes long: embedding, and scoring a text.

It is done on the engine's thread, in pieces between its steps: it waits for no answer to end, and no answer
waits longer for it than for a piece of a prompt. One piece at a time is under way for a model, however many
callers there are. Where nobody waits for it any more, the next piece is not begun.
"""

import threading
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
        self._turn = threading.Lock()

    def piece(self, function: Callable[[LoadedModel], T]) -> T:
        """What the function gives, on the engine's thread. Raises what it raises, ModelkitError where nobody
        waits for it, ThreadEnded where the engine has ended.
        """
        with self._turn:
            check_wanted()
            return self._engine.call(function)
