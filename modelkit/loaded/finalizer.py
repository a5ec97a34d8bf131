"""Models that nobody holds any more and nobody closed, as of a notebook's cell that ran again: closed here.

The garbage collector may find one at any moment, on any thread, the engine's own included, so whoever is
told may neither wait nor take a lock: it hands the model to a thread of this room and returns.
"""

import atexit
import gc
import threading
import weakref
from queue import SimpleQueue
from typing import Protocol

from runtime import device


class Closing(Protocol):
    def close(self) -> None: ...


_LEFT: "SimpleQueue[Closing | None]" = SimpleQueue()  # its `put` may interrupt itself; None: look at _ends
_STARTED = threading.Lock()
_closer: threading.Thread | None = None
_ends = False
_ENDS_WITHIN_S = 10.0  # its model may be in the middle of a long step


def watch(holder: object, held: Closing) -> "weakref.finalize[..., object]":
    """Close `held` soon after nobody holds `holder` any more, unless what is returned is detached. Not at the
    end of the program, where everything ends by itself.
    """
    global _closer
    with _STARTED:
        if _closer is None or not _closer.is_alive():
            _closer = threading.Thread(target=_close_all, name="modelkit-finalizer", daemon=True)
            _closer.start()
    watched = weakref.finalize(holder, _LEFT.put, held)
    watched.atexit = False
    return watched


def _close_all() -> None:
    while not _ends:
        _close(_LEFT.get())


def _end() -> None:
    """Wait for what is being closed: it computes, and where it came back from MLX to an interpreter that is
    gone, the process would abort.
    """
    global _ends
    _ends = True
    _LEFT.put(None)
    if _closer is not None:
        _closer.join(_ENDS_WITHIN_S)


atexit.register(_end)


def _close(held: Closing | None) -> None:
    """In a function of its own, so that nothing is held while the next one is waited for."""
    if held is None:
        return
    try:
        held.close()
    except Exception:  # nobody waits for this one, and the next ones are to be closed, too
        import logging  # late, as hardly anybody needs it

        logging.getLogger(__name__).warning(
            "a model that nobody held any more was not closed in order", exc_info=True
        )
    del held
    gc.collect()  # as in Model.close
    device.give_back()
