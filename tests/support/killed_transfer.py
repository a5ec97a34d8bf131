"""A push or a pull in a process that kills itself, as by `kill -9`, once so many bytes have gone.

python -m tests.support.killed_transfer push|pull HOME HOST REPOSITORY BYTES CHUNK
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from modelkit.address import RegistryAddress
from modelkit.fetch.access import Access
from modelkit.fetch.registry.pull import pull
from modelkit.fetch.registry.push import push
from modelkit.pack.build import build
from modelkit.store import Name, Store


class Deadly:
    """A Listener that ends the process."""

    def __init__(self, after_bytes: int) -> None:
        self._left_bytes = after_bytes

    def say(self, sentence: str) -> None: ...
    def begin(self, label: str, total_bytes: int) -> None: ...
    def finish(self) -> None: ...

    def advance(self, done_bytes: int) -> None:
        self._left_bytes -= done_bytes
        if self._left_bytes <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run(verb: str, home: Path, host: str, repository: str, after_bytes: int, chunk_bytes: int) -> None:
    """Start such a process, and wait until it is dead."""
    words = [verb, str(home), host, repository, str(after_bytes), str(chunk_bytes)]
    done = subprocess.run([sys.executable, "-m", __name__, *words], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def main() -> None:
    verb, home, host, repository, after_bytes, chunk_bytes = sys.argv[1:]
    address = RegistryAddress(host, repository, "latest")
    access = Access(listener=Deadly(int(after_bytes)))
    if verb == "push":
        push("story", address, Store(Path(home)), access, chunk_bytes=int(chunk_bytes))
    else:
        pull(address, Name.parse("back"), Store(Path(home)), access, build)


if __name__ == "__main__":
    main()
