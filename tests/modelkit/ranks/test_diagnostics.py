"""What is said of machines over a link that is no fast one."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.support import ranks

RATE = 2 << 20
"""Bytes per second, each way."""


def _slowly(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):  # one end is gone
        while piece := source.recv(1 << 16):
            time.sleep(len(piece) / RATE)
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


def _reached(port: int) -> socket.socket:
    for _ in range(600):
        with suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port))
        time.sleep(0.05)
    raise TimeoutError


def _passes_on(listener: socket.socket, port: int) -> None:
    """One connection, to this port of loopback, as soon as somebody listens there."""
    listener.settimeout(100)
    with listener.accept()[0] as near, _reached(port) as far, ThreadPoolExecutor() as pool:
        pool.submit(_slowly, near, far)
        pool.submit(_slowly, far, near)


def test_a_slow_link_is_no_machine_that_is_lost(tmp_path: Path) -> None:
    """8 MB take longer there than anybody is waited for."""
    own = ranks.free_ports(2)
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in own]
    passing = [threading.Thread(target=_passes_on, args=ends) for ends in zip(listeners, own, strict=True)]
    for thread in passing:
        thread.start()
    processes: list[subprocess.Popen[str]] = []
    for rank in (0, 1):
        known = [own[at] if at == rank else listeners[at].getsockname()[1] for at in (0, 1)]
        hosts = tmp_path / f"hosts-{rank}.json"
        hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in known]))
        surroundings = {"PYTHONPATH": str(ranks.ROOT), "MODELKIT_HOME": str(tmp_path / str(rank))}
        surroundings |= {"MLX_HOSTFILE": str(hosts), "MLX_RANK": str(rank), "MODELKIT_RANK_TIMEOUT": "2s"}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "modelkit", "doctor", "--hosts", "--json"],
                env=os.environ | surroundings,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
    try:
        out, err = processes[0].communicate(timeout=120)
    finally:
        ranks.stop(processes)
        for thread, listener in zip(passing, listeners, strict=True):
            thread.join()
            listener.close()
    assert out, err
    assert 0.01 * RATE < json.loads(out)["ranks"][0]["link"]["bytes_per_s"] < 2 * RATE
