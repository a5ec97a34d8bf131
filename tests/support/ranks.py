"""Several processes on loopback that form a group, as a launcher would start them.

To start them takes longer than most of what they do in tests, so they stay for all tests of a session
(`tests/conftest.py`); only those that lose somebody have processes of their own (`start`).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tests.support import __file__ as _here
from tests.support import working

ROOT = Path(_here).resolve().parents[2]


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


def environments(folder: Path, size: int) -> list[dict[str, str]]:
    """What each rank finds in its environment."""
    hosts = folder / f"hosts-{size}.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in free_ports(size)]), encoding="utf-8")
    given = os.environ | {"MLX_HOSTFILE": str(hosts), "PYTHONPATH": str(ROOT)}
    return [given | {"MLX_RANK": str(rank)} for rank in range(size)]


def start(folder: Path, size: int, module: str, *words: str) -> list[subprocess.Popen[str]]:
    """`python -m module words` on each rank."""
    command = [sys.executable, "-W", "ignore", "-m", module, *words]
    return [
        subprocess.Popen(
            command, env=env, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for env in environments(folder, size)
    ]


class Standing:
    """Ranks that stay, and do one thing after the other (`tests.support.working`)."""

    def __init__(self, folder: Path, size: int) -> None:
        self._said = [folder / f"said-{size}-{rank}" for rank in range(size)]
        self._processes: list[subprocess.Popen[str]] = []
        self._late = False
        for env, said in zip(environments(folder, size), self._said, strict=True):
            with said.open("w") as errors:
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-W", "ignore", "-m", working.__name__],
                        env=env,
                        text=True,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=errors,
                    )
                )

    @property
    def ended(self) -> bool:
        return any(process.poll() is not None for process in self._processes)

    def do(self, folder: Path, module: str, name: str, *words: Any, within_s: float = 240) -> list[Any]:
        """What each rank gave. They end where one failed, and where one is late, saying where they are."""
        line = json.dumps([module, name, str(folder), words])
        for process in self._processes:
            assert process.stdin is not None
            print(line, file=process.stdin, flush=True)
        late = threading.Timer(within_s, self._abort)
        late.start()
        try:
            with ThreadPoolExecutor(len(self._processes)) as pool:
                answers = [*pool.map(_answer, self._processes)]
        finally:
            late.cancel()
        if None in answers:
            self.close()
            ends = zip(self._processes, self._said, strict=True)
            said = (
                f"rank {rank} (ended with {process.returncode}): {path.read_text()[-3000:]}"
                for rank, (process, path) in enumerate(ends)
            )
            why = f"the ranks were late, after {within_s:g} s" if self._late else "a rank failed"
            raise AssertionError(f"{why}:\n" + "\n".join(said))
        return [json.loads(answer) for answer in answers if answer is not None]

    def _abort(self) -> None:
        """Each says where its threads are (`tests.support.working`), and ends."""
        self._late = True
        for process in self._processes:
            process.send_signal(signal.SIGABRT)
            process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        stop(self._processes)


def _answer(process: subprocess.Popen[str]) -> str | None:
    """The next one; None where the process has ended without it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(working.MARK):
            return line.removeprefix(working.MARK)
    return None


def stop(processes: list[subprocess.Popen[str]]) -> None:
    """Whatever they do."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        process.wait()
