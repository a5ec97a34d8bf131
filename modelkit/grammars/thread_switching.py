"""Work that lets other threads in sooner: forms come from anyone, and what is made of one is Python for up to
seconds, while the thread of the event loop and that of all answers need the interpreter for a moment, many
times a token. Each of these moments waits for the interpreter's switch interval, 5 ms by itself.
"""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

_INTERVAL_S = 0.0003
_lock = threading.Lock()
_under_way = 0
_usual_s = sys.getswitchinterval()


@contextmanager
def short_switch_interval() -> Generator[None]:
    """Of the whole process, as long as anyone is in it; then as it was."""
    global _under_way, _usual_s
    with _lock:
        if not _under_way:
            _usual_s = sys.getswitchinterval()
            sys.setswitchinterval(min(_usual_s, _INTERVAL_S))
        _under_way += 1
    try:
        yield
    finally:
        with _lock:
            _under_way -= 1
            if not _under_way:
                sys.setswitchinterval(_usual_s)
