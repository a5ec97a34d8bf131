"""Several processes on loopback that form a group, as a launcher would start them."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support import __file__ as _here

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


def run(folder: Path, size: int, module: str, *words: str, within_s: float = 60) -> list[Any]:
    """What each rank printed last, as JSON. Every rank has to end well, and in time."""
    processes = start(folder, size, module, *words)
    try:
        ended = [process.communicate(timeout=within_s) for process in processes]
    except subprocess.TimeoutExpired:
        raise AssertionError(f"not ended within {within_s:g} s:\n{_remains(processes)}") from None
    finally:
        stop(processes)
    said = "\n".join(f"rank {rank}: {err[-3000:]}" for rank, (_, err) in enumerate(ended))
    assert all(process.returncode == 0 for process in processes), said
    return [json.loads(out.splitlines()[-1]) for out, _ in ended]


def stop(processes: list[subprocess.Popen[str]]) -> None:
    """Whatever they do."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()


def _remains(processes: list[subprocess.Popen[str]]) -> str:
    for process in processes:
        process.kill()
    return "\n".join(f"rank {rank}: {one.communicate()[1][-3000:]}" for rank, one in enumerate(processes))
