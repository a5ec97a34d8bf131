"""The connections that MLX's ring holds to other machines, seen from outside.

MLX waits for a peer in a loop that neither rests nor ends: it asks a connection that never blocks, again
and again, so a peer that is alive and silent is waited for for ever, at the price of a core. It does notice
a connection that is shut. So what it opened is found here, to be slept on until something comes, and to be
cut once a wait has taken too long: then whatever waits in MLX fails with an error, here and on the
neighbours, and their neighbours after them.

Its loop is given rest besides (`let_rest`): whether a connection blocks is a matter of the connection, not
of who holds a descriptor of it, so here they are made to, for REST_S at most. What MLX asks for then sleeps
in the system until bytes come, and after REST_S it is told what it knows from before: that there are none
yet. MLX has one thread for a connection, so one direction waits for the other, no longer than that: nothing
that hurries goes both ways over one of them at once (`ONE_WAY_BYTES` of `runtime.ranks.group`).

Where there are kernels, nodes of ours read and write these connections instead (`runtime.ranks.ring`).

Backends that use no sockets of this process have none: `found` is empty then.
"""

import os
import select
import socket
import stat
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

REST_S = 0.02
"""How long MLX sleeps on a connection before it looks for what else is to be done with it."""
_OPEN_FILES = next((path for path in (Path("/proc/self/fd"), Path("/dev/fd")) if path.is_dir()), None)


def sockets() -> frozenset[int]:
    """File descriptors of all sockets that this process has open."""
    if _OPEN_FILES is None:
        return frozenset()
    found: set[int] = set()
    for name in os.listdir(_OPEN_FILES):
        with suppress(OSError, ValueError):  # the folder's own descriptor is gone by now
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.add(int(name))
    return frozenset(found)


class Links:
    """Connected sockets of this process that somebody else reads and writes."""

    def __init__(self, descriptors: Iterable[int]) -> None:
        # Copies: theirs may be closed, and their numbers given to other files, while ours are looked at.
        copies = [socket.socket(fileno=os.dup(one)) for one in sorted(descriptors)]
        self._sockets = [one for one in copies if _is_connected(one)]
        self._poll = select.poll()
        for one in self._sockets:
            _keep_asking(one)
            self._poll.register(one, select.POLLIN)

    @classmethod
    def opened_since(cls, before: frozenset[int]) -> "Links":
        """before: of `sockets`, taken when there were none of these yet."""
        return cls(sockets() - before)

    def __len__(self) -> int:
        return len(self._sockets)

    def sides(self, port: int) -> tuple[int, int] | None:
        """Descriptors of the connections to the rank before and to the one behind, of one that was found at
        this port; they stay open. None where there are others than these two.
        """
        by_port = [one.getsockname()[1] == port for one in self._sockets]
        if sorted(by_port) != [False, True]:
            return None
        left = by_port.index(True)
        return self._sockets[left].fileno(), self._sockets[1 - left].fileno()

    def let_rest(self) -> None:
        """Whoever reads and writes them sleeps from now on until that can be done, for REST_S at most."""
        for one in self._sockets:
            _let_rest(one)

    def wait(self, seconds: float | None) -> bool:
        """Sleep until one of them has something to read, or has been shut; False where none has by then.
        None: for as long as it takes.
        """
        return bool(self._poll.poll(None if seconds is None else seconds * 1000))

    def wait_until_shut(self, seconds: float) -> None:
        """Until peers have shut all of them, so long at most."""
        until_s = time.monotonic() + seconds
        while not all(map(_is_shut, self._sockets)) and time.monotonic() < until_s:
            time.sleep(REST_S)

    def broken(self) -> bool:
        """Has a peer shut one of them, or is it gone?"""
        return any(map(_is_shut, self._sockets))

    def cut(self) -> None:
        """Shut all of them, both ways."""
        for one in self._sockets:
            with suppress(OSError):  # the peer may have done so
                one.shutdown(socket.SHUT_RDWR)


def _is_shut(one: socket.socket) -> bool:
    """Looks, and takes nothing away from whoever reads it."""
    try:
        return not one.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _let_rest(one: socket.socket) -> None:
    """Not by `settimeout`, for which Python makes a connection one that does not block."""
    seconds = struct.pack("@ll", int(REST_S), round(REST_S % 1 * 1e6))
    with suppress(OSError):  # a system that has no such rests waits as MLX does
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
        os.set_blocking(one.fileno(), True)


def _keep_asking(one: socket.socket) -> None:
    """A machine that lost its power closes nothing: after half a minute without a sign of it, the connection
    is cut.
    """
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # macOS has other names for some
            one.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _is_connected(one: socket.socket) -> bool:
    """An attempt that failed leaves a socket open, too."""
    with suppress(OSError):
        if one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6):
            one.getpeername()
            return True
    one.close()
    return False
