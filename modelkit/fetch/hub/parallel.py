"""Several transfers at a time. The first that fails ends all of them at once, and so does Ctrl-C: who waits
for a server that says nothing is waited for a moment and then left alone. Such a thread finds out that all
is over when it hears something, or when its own time is over; it does not keep the program from ending.
"""

from collections import deque
from collections.abc import Callable, Iterable
from threading import Semaphore, Thread
from time import monotonic

WORKERS = 8
_GRACE_S = 2.0


Task = Callable[[], None]


def side_by_side(tasks: Iterable[Task], stop: Callable[[], None]) -> None:
    """Run the tasks, in their order. stop: ends what is under way, as far as that can be.

    Raises the first error.
    """
    waiting, failed, ended = deque(tasks), list[BaseException](), Semaphore(0)

    def work() -> None:
        try:
            while not failed and (task := _next(waiting)):
                task()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            failed.append(error)
        finally:
            ended.release()

    threads = [Thread(target=work, name="fetch", daemon=True) for _ in range(min(WORKERS, len(waiting)))]
    try:
        for one in threads:
            one.start()
        for _ in threads:
            ended.acquire()
            if failed:
                raise failed[0]
    finally:
        waiting.clear()
        stop()
        until = monotonic() + _GRACE_S
        for one in threads:
            one.join(max(until - monotonic(), 0))


def _next(waiting: deque[Task]) -> Task | None:
    """Taken in one step: between a look and the taking, another thread may take the last one."""
    try:
        return waiting.popleft()
    except IndexError:
        return None
