"""Several processes at once on one store: each sees only whole packages, and none disturbs another."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from modelkit.store import Store
from tests.modelkit.store.packages import blobs_named, blobs_on_disk, put

ROOT = Path(__file__).parents[3]


def hammer(home: Path, seed: int, seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, str(Path(__file__).with_name("hammer.py")), str(home), str(seed), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(workers: list["subprocess.Popen[str]"]) -> None:
    ends = [worker.communicate() for worker in workers]
    assert [error for _, error in ends if error] == []
    assert {said for said, _ in ends} == {"at work\ndone\n"}


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_processes_at_once_do_not_disturb_each_other(store: Store, tmp_path: Path, seconds: float):
    finish([hammer(tmp_path / "home", seed, seconds) for seed in range(4)])
    assert store.verify().problems == ()
    store.prune()
    assert blobs_on_disk(store) == blobs_named(store)
    assert list((store.root / "ingest").iterdir()) == []


def test_killing_processes_at_random_harms_nothing(store: Store, tmp_path: Path):
    put(store, "kept", {"kept.json": b"kept"})
    for seed in range(6):
        worker = hammer(tmp_path / "home", seed, 60)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "at work\n"
        time.sleep(0.05 + seed * 0.037)
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        assert store.verify().problems == ()
    store.prune()
    assert blobs_on_disk(store) == blobs_named(store)
    assert store.resolve("kept").files["kept.json"].read_bytes() == b"kept"
