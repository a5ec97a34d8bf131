"""Several requests at a time. Unlike those to the hub (`hub.together`), all have ended when the call returns:
they write into one file, which may be begun anew next.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait


def side_by_side(
    tasks: Sequence[Callable[[], None]], at_once: int, stop: Callable[[BaseException], None]
) -> None:
    """Run the tasks, so many at once. The first error is raised; `stop` is told of it before, and ends what
    the others are busy with.
    """
    if len(tasks) <= 1:
        for task in tasks:
            task()
        return
    with ThreadPoolExecutor(at_once, thread_name_prefix="registry") as pool:
        running = [pool.submit(task) for task in tasks]
        try:
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
            for one in done:
                one.result()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            stop(error)
            raise
