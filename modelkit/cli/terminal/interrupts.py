"""What Ctrl-C does, at every moment of a command.

While a command starts, loads a model or ends there is nothing to lose, and an interrupt ends the process at
once. While it works, the first one is a KeyboardInterrupt, so that everything is put away; a second one, for
whom that takes too long, ends the process at once. One answer is not worth more than a moment of putting away
(`Soon`). Exit code 130 in every case.

Two moments are no good for an exception: while a module of C or C++ is imported, and while Python calls back
for an object that goes (`__del__`, weak references), where it would be printed and lost. An interrupt that
comes then has its effect as soon as that is done.

What ends the process at once, SIGTERM and SIGHUP (a terminal that is closed) among it, takes temporary
folders away first. Nothing else is put away then: what lies in the store is found by its next user.

Relies on nothing that takes time to import: `entry` sets the handler before all else, and until then that of
`start` ends the process. Where it was never set (commands called from Python, an ignored SIGINT) these
functions only count.
"""

import atexit
import os
import signal
from contextlib import suppress
from types import FrameType, TracebackType

from modelkit.cli.early_exit import INTERRUPTED, leave
from modelkit.temporary import put_away

LATER_S = 0.02  # until an interrupt that came at a wrong moment is tried again

_FORGETTING = tuple(f"{os.sep}{name}.py" for name in ("_weakrefset", "weakref"))  # their callbacks

_at_once = 1  # above 0: nothing to lose
_pending = False  # a KeyboardInterrupt is on its way through the command
_put_off = False  # one came at a wrong moment and is tried again soon
_patience_s: float | None = None  # how long that may take before the process ends all the same


def install() -> None:
    """Answer SIGINT, SIGTERM and SIGHUP from now on, unless whoever started us has them ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _ended)
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, leave):
        signal.signal(signal.SIGINT, _interrupted)
        # Registered first, so called last. Python then takes our handler away, and a signal in its very last
        # moments would end with another exit code a command that has done all its work.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)  # nor one that waits to be tried again


def leave_to_another() -> None:
    """Ctrl-C in a terminal reaches all processes that were started from there. From now on another one
    answers it, and ends this one.
    """
    with suppress(ValueError):  # not on the main thread: it reaches others
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def pending() -> bool:
    """Was the command interrupted, and is it still putting things away?"""
    return _pending


def handled() -> None:
    """The interrupt has had its effect; the next one is a first one again."""
    global _pending
    _pending = False


class AtOnce:
    """A block with nothing to lose."""

    def __enter__(self) -> None:
        _add(1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _add(-1)


class InOrder:
    """A block that puts things away when it is interrupted."""

    def __enter__(self) -> None:
        _add(-1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _add(1)


class Soon:
    """A block whose putting away may be given up after a moment: a step that reads a long prompt cannot be
    broken off, and its result is no longer wanted.
    """

    def __init__(self, patience_s: float = 2.0) -> None:
        self._wanted_s = patience_s

    def __enter__(self) -> None:
        global _patience_s
        _patience_s = self._wanted_s

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _patience_s
        _patience_s = None


def _add(change: int) -> None:
    global _at_once
    _at_once += change


def _interrupted(number: int, frame: FrameType | None) -> None:
    global _pending, _put_off
    if _at_once > 0 or _pending or (_put_off and number == signal.SIGINT):
        _leave()
    _put_off = _makes_extension(frame) or _is_called_back(frame)
    if _put_off:
        _again_soon()
        return
    _pending = True
    if _patience_s is not None:
        import threading  # takes its time, and is there by now

        last = threading.Timer(_patience_s, _leave, (b"interrupted\n",))
        last.daemon = True
        last.start()
    raise KeyboardInterrupt


def _ended(number: int, _: FrameType | None) -> None:
    put_away()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)  # whoever waits for us is told which signal it was


def _makes_extension(frame: FrameType | None) -> bool:
    """Is a module of C or C++ being imported? It runs Python while it is made, and an exception out of that
    ends the import with an ImportError, or the process.
    """
    while frame is not None:
        if type(frame.f_locals.get("self")).__name__ == "ExtensionFileLoader":
            return True
        frame = frame.f_back
    return False


def _is_called_back(frame: FrameType | None) -> bool:
    """Is an object being forgotten? What is raised there is printed with a traceback, and goes no further."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or code.co_filename.endswith(_FORGETTING):
            return True
        frame = frame.f_back
    return False


def _again_soon() -> None:
    signal.signal(signal.SIGALRM, _interrupted)
    signal.setitimer(signal.ITIMER_REAL, LATER_S)


def _leave(last_word: bytes = b"") -> None:
    """Without waiting for any thread."""
    put_away()
    with suppress(OSError):  # there is nobody to say it to
        if os.isatty(2):
            os.write(2, b"\r\x1b[K")  # a line of progress may stand there
        os.write(2, last_word)
    os._exit(INTERRUPTED)
