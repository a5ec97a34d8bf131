"""Messages that do not wait for what is computed: written and read by the host, not by nodes of a graph.

A node is begun when those before it are over. A message that is one leaves once the step before has been
computed, and whoever hears it then begins to build the next step, while all others wait. Where the stream of
a ring goes one way only, the other way is free: ranks that share all layers send sums to the left
(`Ring.sums`), and so these messages go to the right, at any time.

What goes over the connection is what nodes would send and receive. Nothing of theirs may be on its way there.
"""

import os
import select
import socket

_MOST_BYTES = 1 << 20
"""That are asked for at once."""


class Lane:
    """From the rank before to the one behind. ConnectionError where a neighbour is gone."""

    def __init__(self, left: int, right: int) -> None:
        """Descriptors of connections, which others read and write, too, the other way."""
        self._left, self._right = (socket.socket(fileno=os.dup(one)) for one in (left, right))

    def comes(self, seconds: float) -> bool:
        """Sleep until there is something to hear, or nobody to say it; False where there is not by then."""
        return _ready(self._left, select.POLLIN, seconds)

    def receive(self, count: int) -> bytes:
        """So many bytes, all of which are waited for."""
        parts: list[bytes] = []
        while count:
            try:
                part = self._left.recv(min(count, _MOST_BYTES))
            except BlockingIOError:  # it rests for so long only (`runtime.ranks.links`)
                _ready(self._left, select.POLLIN, None)
                continue
            if not part:
                raise ConnectionError("connection to a peer was lost")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def send(self, message: bytes) -> None:
        """All of it has been given to the system."""
        left = memoryview(message)
        while left:
            try:
                left = left[self._right.send(left) :]
            except BlockingIOError:
                _ready(self._right, select.POLLOUT, None)


def _ready(one: socket.socket, event: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(one, event)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
