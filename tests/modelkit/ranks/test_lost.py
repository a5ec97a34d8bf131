"""A rank that dies or hangs ends what runs with a clear error, in time, and leaves no process behind."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from modelkit.faults import as_modelkit_error
from modelkit.ranks import spawn
from modelkit.ranks.rendezvous import _reason, join
from modelkit.settings.launchers import LAUNCHERS
from runtime.cpu import native
from runtime.engine.thread import ThreadEnded
from runtime.errors import RankLost
from runtime.ranks.group import Group
from tests.support import quitting, ranks
from tests.support.ranks import ROOT
from tests.support.tiny import write_model


@pytest.mark.parametrize(
    ("ranks", "shards", "how", "limit_s", "why"),
    [
        (4, 2, "KILL", 100, "the process of rank 3 ended with code -9"),
        (3, 1, "STOP", 3, "has not answered within 3 s"),
    ],
)
def test_who_asks_is_told_in_time(
    tmp_path: Path, ranks: int, shards: int, how: str, limit_s: int, why: str
) -> None:
    """The first time when it is noticed, and then at once."""
    write_model(tmp_path / "model", num_hidden_layers=4)
    words = [str(tmp_path / "model"), str(ranks), str(shards), how]
    out, err = tmp_path / "out", tmp_path / "err"  # files: a process that is left behind would hold a pipe
    with out.open("w") as stdout, err.open("w") as stderr:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.losing", *words],
            env=os.environ | {"PYTHONPATH": str(ROOT), "MODELKIT_RANK_TIMEOUT": f"{limit_s}s"},
            stdout=stdout,
            stderr=stderr,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1, err.read_text()  # MLX is left as it is, and says no more
    said = json.loads(out.read_text().splitlines()[-1])
    assert "other machines of this model cannot be reached" in said["first"]["said"]
    assert why in said["first"]["said"]
    assert said["first"]["s"] < limit_s + 20
    for later in ("second", "anew"):
        assert "other machines of this model cannot be reached" in said[later]["said"]
        assert said[later]["s"] < limit_s - 0.5
    for pid in said["pids"]:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_who_starts_when_its_leader_has_ended_says_so(tmp_path: Path) -> None:
    """As Ctrl-C ends it while the others start: its list of addresses is gone with it."""
    gone = {"MLX_HOSTFILE": str(tmp_path / "hosts.json"), "MLX_RANK": "1", spawn.LEADER: "1234567"}
    done = subprocess.run(
        [sys.executable, "-m", "modelkit.ranks"],
        env=os.environ | gone | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "the process of rank 0 has ended" in done.stderr
    assert "MLX_HOSTFILE" not in done.stderr


def test_a_launcher_whose_way_mlx_has_not_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As mpirun, where MLX was built without MPI."""
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    found = _reason("[distributed] Couldn't initialize any backend")
    assert "has set (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE). Here it has: ring" in found
    assert "A ring takes MLX_RANK and MLX_HOSTFILE" in found


def test_who_asks_too_late_is_told_the_same() -> None:
    """As the thread that computes has ended with it."""
    lost, ended = RankLost("a connection was closed"), ThreadEnded("it ended: RankLost(...)")
    ended.__cause__ = lost
    assert as_modelkit_error(ended).message == as_modelkit_error(lost).message
    assert as_modelkit_error(ended).hint == "Start the model again on all of its machines."


MEETING = """
import os, sys, time, threading, modelkit
from modelkit.ranks import spawn
begun = spawn.Children.__init__
def begin(self, *given):
    begun(self, *given)
    print(*(one.pid for one in self._processes), flush=True)
    os.kill({whom}, 9)
spawn.Children.__init__ = begin
began = time.monotonic()
try:
    modelkit.load("./model", ranks=3)
except modelkit.errors.ModelkitError as error:
    print(error.message, time.monotonic() - began < 100, sep="|", flush=True)
"""


@pytest.mark.skipif(native.kernels is None, reason="MLX's own meeting holds the interpreter while it waits")
@pytest.mark.parametrize("whom", ["self._processes[1].pid", "os.getpid()"])
def test_one_that_ends_before_all_have_met_is_not_waited_for(tmp_path: Path, whom: str) -> None:
    """No rank is left waiting, and no list of addresses behind it."""
    write_model(tmp_path / "model", num_hidden_layers=4)
    (tmp_path / "temporary").mkdir()
    with (tmp_path / "out").open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", MEETING.format(whom=whom)],
            env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "temporary")},
            cwd=tmp_path,
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(120)
        finally:
            process.kill()
            process.wait()
    pids, *said = (tmp_path / "out").read_text().splitlines()
    if whom != "os.getpid()":
        message, in_time = said[0].split("|")
        assert message.endswith("cannot be reached: the process of rank 2 ended with code -9")
        assert in_time == "True"
    until_s = time.monotonic() + 100
    while any(map(_is_there, pids.split())) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not any(map(_is_there, pids.split()))
    assert not list((tmp_path / "temporary").iterdir())


def _is_there(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


SILENT = """
import os, signal, sys
from runtime.cpu import native
from runtime.errors import RankLost
from runtime.ranks.group import Group
group = Group.join("ring", 1.0, native.kernels)
if group.rank:
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    group.least(1)
except RankLost as error:
    print(error, file=sys.stderr, flush=True)
    os._exit(1)
"""


@pytest.mark.skipif(native.kernels is None, reason="what MLX writes is left as it is")
def test_what_mlx_writes_of_a_lost_connection_is_left_out(tmp_path: Path) -> None:
    """Eleven lines for each, before the sentence that says it."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SILENT], env=env, text=True, stderr=subprocess.PIPE
        )
        for env in ranks.environments(tmp_path, 2)
    ]
    try:
        said = processes[0].communicate(timeout=60)[1].splitlines()
        assert len(said) == 1
        assert said[0].endswith("another machine has not answered within 1 s")
    finally:
        ranks.stop(processes)


@pytest.mark.parametrize(("how", "why"), [("KILL", "connection"), ("STOP", "has not answered within 2 s")])
def test_one_that_is_lost_while_a_prompt_comes_from_disk_is_not_waited_for(
    tmp_path: Path, how: str, why: str
) -> None:
    processes = ranks.start(tmp_path, 2, "tests.support.losing_pages", how)
    try:
        out, err = processes[0].communicate(timeout=120)
    finally:
        ranks.stop(processes)
    assert out, err
    said = json.loads(out.splitlines()[-1])
    assert why in said["ended"]
    assert said["s"] < 60


@pytest.mark.parametrize(
    ("rank", "said", "named"),
    [
        (2, "[ring] Couldn't connect (error: 111)", "rank 0 does not answer at a:1 (connection refused)"),
        (1, "[ring] Couldn't bind socket (error: 98)", "rank 1 cannot listen at its address b:1, b:2 (addr"),
        (1, "[ring] Rank cannot be larger", "Rank cannot be larger"),
    ],
)
def test_who_is_not_met_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: int, said: str, named: str
) -> None:
    hosts = tmp_path / "hosts.json"
    hosts.write_text('[["a:1"], ["b:1", "b:2"], ["c:1"]]')
    monkeypatch.setenv("MLX_HOSTFILE", str(hosts))
    monkeypatch.setenv("MLX_RANK", str(rank))
    monkeypatch.setattr(os, "strerror", {111: "Connection refused", 98: "Address already in use"}.get)

    def refuse(*_given: object) -> Group:
        raise RuntimeError(said)

    monkeypatch.setattr(Group, "join", refuse)
    with pytest.raises(RankLost) as lost:
        join()
    assert named in str(lost.value)


def test_nobody_is_lost_where_all_end(tmp_path: Path) -> None:
    """Though the last rank hears of it a second after rank 0 has said so."""
    processes = ranks.start(tmp_path, 3, quitting.__name__)
    try:
        said = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        ranks.stop(processes)
    assert [process.returncode for process in processes] == [0, 0, 0], said
