"""A program that breaks the store's operations at every step and says what it found; run by test_crash.py.

    python faults.py FOLDER FAULT STRIDE

For each scenario, and for each of the system calls by which it changes the disk (every STRIDE-th), a child
process runs the scenario and meets FAULT there: `kill` (gone before the call), `torn` (gone after writing
half), or an errno's name (the call fails). Then the parent looks at what is left. Prints a JSON object:
points tried and complaints.

It works by wrapping the calls in `os`, so it needs nothing of the system and runs on macOS too.
"""

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from modelkit.errors import ModelkitError
from modelkit.store import Digest, Package, Store
from tests.modelkit.store.packages import TREE, blobs_named, blobs_on_disk, put, read

NEW = {**TREE, "model.safetensors": b"new" * 900}
CHANGING_CALLS = ("open", "write", "fsync", "rename", "link", "unlink", "mkdir", "rmdir", "chmod", "fchmod")
KILLED, REFUSED, CRASHED = 137, 3, 4

Trees = dict[str, dict[str, bytes]]


def create(store: Store) -> None:
    put(store, "new", NEW)


def overwrite(store: Store) -> None:
    put(store, "old", NEW)


def copy_over(store: Store) -> None:
    store.copy("old", "other")


def remove(store: Store) -> None:
    store.remove("old")


def prune(store: Store) -> None:
    orphan = b"orphan"
    (store.root / "blobs" / "sha256" / Digest.of(orphan).hex).write_bytes(orphan)
    store.prune()


def export(store: Store) -> None:
    store.export("old", store.root.parent / "out", link=False)


OTHER = {"x.json": b"{}"}
BEFORE: Trees = {"old": TREE, "other": OTHER}
SCENARIOS: dict[str, tuple[Callable[[Store], None], Trees, Trees]] = {
    "first create": (create, {}, {"new": NEW}),
    "create": (create, BEFORE, {**BEFORE, "new": NEW}),
    "overwrite": (overwrite, BEFORE, {**BEFORE, "old": NEW}),
    "copy over": (copy_over, BEFORE, {"old": TREE, "other": TREE}),
    "remove": (remove, BEFORE, {"other": OTHER}),
    "prune": (prune, BEFORE, BEFORE),
    "export": (export, BEFORE, BEFORE),
}


class Fault:
    """Counts the calls that change the disk and strikes at one of them. `at` 0 only counts."""

    def __init__(self, kind: str, at: int) -> None:
        self.kind, self.at, self.count = kind, at, 0

    def install(self) -> None:
        for name in CHANGING_CALLS:
            setattr(os, name, self.wrap(name, getattr(os, name)))

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return call(*args, **kwargs)
            self.count += 1
            if self.count == self.at:
                self.strike(name, call, args)
            return None if name == "fsync" else call(*args, **kwargs)

        return wrapped

    def strike(self, name: str, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self.kind == "torn" and name == "write":
            call(args[0], args[1][: len(args[1]) // 2])
        if self.kind in ("kill", "torn"):
            os._exit(KILLED)
        code = getattr(errno, self.kind)
        raise OSError(code, os.strerror(code))


def in_child(action: Callable[[Store], None], home: Path, fault: Fault) -> tuple[int, int]:
    """Run the action with the fault installed. Returns the exit status and how many calls it made."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        status = CRASHED
        fault.install()
        try:
            action(Store(home))
            status = 0
        except ModelkitError:
            status = REFUSED
        finally:
            fault.at = 0
            os.write(write_end, str(fault.count).encode())
            os._exit(status)
    os.close(write_end)
    _, status = os.waitpid(child, 0)
    with open(read_end) as pipe:
        return os.waitstatus_to_exitcode(status), int(pipe.read() or 0)


def complaints(home: Path, before: Trees, after: Trees, action: Callable[[Store], None]) -> list[str]:
    """Everything wrong with the store that a fault left behind."""
    store = Store(home)
    found = [f"{problem.subject}: {problem.what}" for problem in store.verify().problems]
    packages = store.packages()
    trees = {str(p.name): read(store, str(p.name)) for p in packages if isinstance(p, Package)}
    if trees not in (before, after):
        found.append(f"neither before nor after: {sorted(trees)}")
    store.prune()
    if blobs_on_disk(store) != blobs_named(store) or any((store.root / "ingest").glob("*")):
        found.append("prune left something")
    for name, tree in before.items():  # back to the start, then the same again must succeed
        put(store, name, tree)
    action(store)
    if {str(p.name): read(store, str(p.name)) for p in store.packages()} != after:
        found.append("trying again does not lead to the end")
    return found


def main(folder: Path, kind: str, stride: int) -> None:
    os.fsync = lambda fd: None
    points, bad, ends = 0, [], {}
    for title, (action, before, after) in SCENARIOS.items():
        base, home = folder / "base", folder / "home"
        for name, tree in before.items():
            put(Store(base), name, tree)
        at = total = 0
        while at <= total:
            shutil.copytree(base, home) if base.exists() else home.mkdir()
            status, calls = in_child(action, home, Fault(kind, at))
            ends[status] = ends.get(status, 0) + 1
            if status == CRASHED:
                bad.append(f"{title} at {at}: not a ModelkitError")
            bad += [f"{title} at {at}: {what}" for what in complaints(home, before, after, action)]
            shutil.rmtree(home)
            total = total or calls  # the first run meets no fault
            points, at = points + 1, at + stride
        shutil.rmtree(base, ignore_errors=True)
    print(json.dumps({"points": points, "bad": bad, "ends": ends}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
