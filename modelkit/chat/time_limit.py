"""How long a template is asked what it takes.

That is some sixty renderings, each of which may take what a rendering may. A usual template needs some
milliseconds for all of them; one that wastes time counts as one that does nothing.
"""

import time

MOST_S = 3.0


class TimeLimit:
    """From now on, in the thread's own processor time."""

    def __init__(self) -> None:
        self._until = time.thread_time() + MOST_S

    @property
    def over(self) -> bool:
        return time.thread_time() > self._until
