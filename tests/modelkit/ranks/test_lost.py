"""A rank that dies or hangs ends what runs with a clear error, in time, and leaves no process behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ranks import ROOT
from tests.support.tiny import write_model


@pytest.mark.parametrize(
    ("ranks", "shards", "how", "why", "within_s"),
    [
        (4, 2, "KILL", "connection", 3.0),
        (3, 1, "STOP", "has not answered within 2 s", 7.0),
    ],
)
def test_who_asks_is_told_in_time(
    tmp_path: Path, ranks: int, shards: int, how: str, why: str, within_s: float
) -> None:
    write_model(tmp_path / "model", num_hidden_layers=4)
    words = [str(tmp_path / "model"), str(ranks), str(shards), how]
    out, err = tmp_path / "out", tmp_path / "err"  # files: a process that is left behind would hold a pipe
    with out.open("w") as stdout, err.open("w") as stderr:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.losing", *words],
            env=os.environ | {"PYTHONPATH": str(ROOT), "MODELKIT_RANK_TIMEOUT": "2s"},
            stdout=stdout,
            stderr=stderr,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1, err.read_text()  # MLX is left as it is, and says no more
    said = json.loads(out.read_text().splitlines()[-1])
    assert "other machines of this model cannot be reached" in said["first"]["said"]
    assert why in said["first"]["said"]
    assert said["first"]["s"] < within_s
    assert "other machines of this model cannot be reached" in said["second"]["said"]
    assert said["second"]["s"] < 1
    for pid in said["pids"]:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
