"""Killed, or refused by the system, at any call that changes the disk: nothing is lost or half done."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from modelkit.store import Package, Store
from tests.modelkit.store.packages import TREE, blobs_named, blobs_on_disk, put, read

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


def strike(folder: Path, kind: str, stride: int) -> dict[str, object]:
    command = [sys.executable, str(Path(__file__).with_name("faults.py")), str(folder), kind, str(stride)]
    done = subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(("kind", "stride"), [("kill", 7), ("torn", 13), ("ENOSPC", 11), ("EIO", 17)])
def test_a_fault_at_some_steps_harms_nothing(tmp_path: Path, kind: str, stride: int):
    result = strike(tmp_path, kind, stride)
    assert result["bad"] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kill", "torn", "ENOSPC", "EIO", "EDQUOT", "EMFILE", "EROFS"])
def test_a_fault_at_every_step_harms_nothing(tmp_path: Path, kind: str):
    result = strike(tmp_path, kind, 1)
    assert result["bad"] == []
    assert isinstance(points := result["points"], int)
    assert points > 300


# The same from outside, where no wrapping can be mistaken: the kernel kills it at the system call.

CALLS = ("openat", "write", "fsync", "rename", "unlink", "mkdir", "rmdir", "fchmod")
PROGRAM = """
import sys
from pathlib import Path
from modelkit.store import Store
from tests.modelkit.store.packages import TREE, put
store = Store(Path(sys.argv[1]))
put(store, "story", {**TREE, "model.safetensors": b"new" * 900})
store.copy("story", "tale")
store.remove("story")
"""


def strace(home: Path, *options: str) -> "subprocess.CompletedProcess[bytes]":
    command = ["strace", "-f", "-qq", *options, sys.executable, "-c", PROGRAM, str(home)]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True)


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int]]:
    """The system calls by which the program changes the store: which call, and its number among its kind."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    folder = tmp_path_factory.mktemp("traced")
    put(Store(folder / "home"), "story")
    log = folder / "log"
    if strace(folder / "home", "-e", f"trace={','.join(CALLS)}", "-o", str(log)).returncode != 0:
        pytest.skip("strace may not trace here")
    return list(_changes(log.read_text()))


def _changes(log: str) -> Iterator[tuple[str, int]]:
    seen: Counter[str] = Counter()
    for call, rest in re.findall(r"^\d+ +(\w+)\((.*)$", log, re.MULTILINE):
        seen[call] += 1
        if call != "openat" or "O_CREAT" in rest:
            yield call, seen[call]


def kill_at(call: str, nth: int, home: Path) -> None:
    """Kill the program there; each name must be as before or as after, and the rest go in a prune."""
    new = {**TREE, "model.safetensors": b"new" * 900}
    store = Store(home)
    put(store, "story")
    done = strace(home, "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={nth}")
    assert done.returncode != 0
    assert store.verify().problems == ()
    assert all(isinstance(package, Package) for package in store.packages())
    trees = {str(package.name): read(store, str(package.name)) for package in store.packages()}
    assert trees in ({"story": TREE}, {"story": new}, {"story": new, "tale": new}, {"tale": new})
    store.prune()
    assert blobs_on_disk(store) == blobs_named(store)


def test_the_kernel_killing_it_at_some_steps_harms_nothing(steps: list[tuple[str, int]], tmp_path: Path):
    for place, (call, nth) in enumerate(steps[:: len(steps) // 12]):
        kill_at(call, nth, tmp_path / str(place))


@pytest.mark.slow
def test_the_kernel_killing_it_at_every_step_harms_nothing(steps: list[tuple[str, int]], tmp_path: Path):
    for place, (call, nth) in enumerate(steps):
        kill_at(call, nth, tmp_path / str(place))
