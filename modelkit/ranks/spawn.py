"""Processes on this machine that run a model together with this one, over loopback.

They are what a launcher would start on other machines: the same program, with a rank and a list of addresses
in its environment. No port is open but the two ends of each connection, on 127.0.0.1.

Invariant: what they import is found where this process has found it. The folder that somebody works in may
have a `runtime` of its own, or another checkout of modelkit, and Python looks there first for whoever is
started with `-m`.
"""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from modelkit.temporary import TemporaryFolder, take_away
from runtime.errors import RankLost

LEADER = "MODELKIT_RANKS_LEADER"
"""In the environment of what is started here: the process that has done so."""
_LOOPBACK = "127.0.0.1"
_PATIENCE_S = 10.0
_ENDED_S = 0.2


class Children:
    """Ranks 1 to `size - 1`. Close it when they are not needed any more."""

    def __init__(self, size: int, home: Path) -> None:
        self._folder = TemporaryFolder("ranks", "the addresses of ranks")
        hosts = self._folder.path / "hosts.json"
        with self._folder.writing():
            hosts.write_text(
                json.dumps([[f"{_LOOPBACK}:{port}"] for port in _free_ports(size)]), encoding="utf-8"
            )
        surroundings = {
            "MLX_HOSTFILE": str(hosts),
            "MODELKIT_HOME": str(home),
            LEADER: str(os.getpid()),
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        }
        self.own = {"MLX_HOSTFILE": str(hosts), "MLX_RANK": "0"}
        """What this process, rank 0, needs in its environment to join."""
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", "modelkit.ranks"],
                env=os.environ | surroundings | {"MLX_RANK": str(rank)},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C ends an answer here, and not the machines that compute it
            )
            for rank in range(1, size)
        ]

    def check(self) -> None:
        """Raise RankLost where one has ended by itself."""
        for rank, process in enumerate(self._processes, start=1):
            if process.poll() is not None:
                raise RankLost(f"the process of rank {rank} ended with code {process.returncode}")

    def ended(self) -> str | None:
        """Which one has ended, in words: one that was killed, rather than one that has missed it and ended.
        It is gone a moment after its connections.
        """
        until_s = time.monotonic() + _ENDED_S
        while time.monotonic() < until_s:
            codes = [(process.poll(), rank) for rank, process in enumerate(self._processes, start=1)]
            gone = sorted((code, rank) for code, rank in codes if code is not None)
            if gone:
                code, rank = gone[0]
                return f"the process of rank {rank} ended with code {code}"
            time.sleep(_ENDED_S / 10)
        return None

    def met(self) -> None:
        """All have joined, and need the list of addresses no more."""
        self._folder.remove()

    def close(self, *, at_once: bool = False) -> None:
        """Wait until they have ended, and end those that do not. at_once: do not wait."""
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0 if at_once else _PATIENCE_S)
            process.kill()
            process.wait()
        self._folder.remove()


def check_leader() -> None:
    """Of a process that was started here: raise RankLost where nobody is there who leads it, and take away
    what that one has left. For others nothing is known.
    """
    leader = os.environ.get(LEADER)
    if leader is not None and leader != str(os.getppid()):
        with suppress(OSError):  # another rank may have done so
            take_away(os.path.dirname(os.environ.get("MLX_HOSTFILE", "")))
        raise RankLost("the process of rank 0 has ended")


def _free_ports(count: int) -> list[int]:
    """Of loopback. Somebody may take one before it is used: then joining fails, and says so."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind((_LOOPBACK, 0))
        return [one.getsockname()[1] for one in held]
