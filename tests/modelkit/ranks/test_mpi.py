"""Ranks that MPI has started (Open MPI's mpirun, where that is installed), and what it wants of each."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mlx.core as mx
import pytest

import modelkit
from modelkit.ranks import mpi
from modelkit.settings.launchers import held_by_mlx, held_by_mpi
from runtime.ranks.group import Group
from runtime.ranks.links import Links
from runtime.ranks.stage_rank import StageRank
from tests.support import ranks
from tests.support.tiny import write_model

MPIRUN = shutil.which("mpirun")
ASKED = ["Once upon", "-p", "temperature=0.8", "-p", "seed=4", "-p", "num_predict=8", "--json"]
LONG = ["Once upon a time " * 2, *ASKED[1:]]
"""Its sums are more than MPI takes before somebody receives them, and less than sockets hold."""


def _said(folder: Path, size: int, *words: str) -> str:
    env = os.environ | {"PYTHONPATH": str(ranks.ROOT), "MODELKIT_HOME": str(folder / "home")}
    command = [sys.executable, "-W", "ignore", "-m", "modelkit", "run", "./model", *words]
    freely = ["--allow-run-as-root", "--oversubscribe"]
    done = subprocess.run(
        [str(MPIRUN), *freely, "-np", str(size), *command],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["text"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = tmp_path_factory.mktemp("mpi")
    write_model(there / "model", num_hidden_layers=4, seed=3)
    return there


@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
@pytest.mark.parametrize(("size", "words"), [(2, ASKED), (4, [*LONG, "--shards", "2"])])
def test_they_say_the_same_and_end_in_order(folder: Path, size: int, words: list[str]) -> None:
    with modelkit.load(folder / "model") as model:
        alone = model.generate(words[0], temperature=0.8, seed=4, num_predict=8).text
    assert _said(folder, size, *words) == alone


class Meeting:
    """What `mx.distributed` gives; MPI opens a connection to who has started it meanwhile."""

    def __init__(self) -> None:
        self.pair = (socket.socket(), socket.socket())

    def init(self, **_: object) -> Any:
        ear, own = self.pair
        ear.bind(("127.0.0.1", 0))
        ear.listen()
        own.connect(ear.getsockname())
        return SimpleNamespace(rank=lambda: 1, size=lambda: 2)


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meeting]:
    found = Meeting()
    monkeypatch.setattr(mx.distributed, "init", found.init)
    with closing(found.pair[0]), closing(found.pair[1]):
        yield found


@pytest.mark.usefixtures("meeting")
def test_what_mpi_connects_to_is_no_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a rank waits there for what comes another way."""
    monkeypatch.delenv("MLX_HOSTFILE", raising=False)
    group = Group.join()
    assert not len(group.links)
    assert not group.sends_ahead


@pytest.mark.parametrize(("within_s", "bound_s"), [(None, float("inf")), (7.0, 7.0)])
def test_an_idle_rank_without_connections_may_wait_longer_than_a_busy_one(
    monkeypatch: pytest.MonkeyPatch, within_s: float | None, bound_s: float
) -> None:
    raw = cast("Any", SimpleNamespace(rank=lambda: 1, size=lambda: 1))
    group = Group(raw, Links([]), limit_s=60.0)
    bounds: list[float] = []

    def heard(*_: object) -> bytes:
        bounds.append(group._bounded.within_s)  # pyright: ignore[reportPrivateUsage]
        return b"said"

    monkeypatch.setattr(group, "_hear", heard)
    assert group.hear(within_s) == b"said"
    assert bounds == [bound_s]


def test_pairs_take_turns_where_nothing_leaves_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr("runtime.ranks.stage_rank.moves", lambda *_, small: asked.append(small) or [])
    for links in (0, 2):
        group: Any = SimpleNamespace(rank=0, size=4, sends_ahead=links > 0)
        seat = StageRank.__new__(StageRank)
        seat.group, seat.shard, seat.shards, seat._nodes = group, 0, 1, None  # pyright: ignore
        seat._sum(mx.zeros((1, 2)))  # pyright: ignore[reportPrivateUsage]
    assert asked == [False, True]


class Library:
    """Of MPI, as C has it."""

    def __init__(self, begun: int, over: int) -> None:
        self.calls: list[str] = []
        self._states = {"MPI_Initialized": begun, "MPI_Finalized": over}

    def __getattr__(self, name: str) -> Any:
        def call(*where: Any) -> None:
            if where:
                where[0]._obj.value = self._states[name]
            else:
                self.calls.append(name)

        return call


@pytest.mark.parametrize(("begun", "over", "said"), [(1, 0, ["MPI_Finalize"]), (1, 1, []), (0, 0, [])])
def test_leave_is_taken_once(monkeypatch: pytest.MonkeyPatch, begun: int, over: int, said: list[str]) -> None:
    library = Library(begun, over)
    monkeypatch.setattr(mpi.ctypes, "CDLL", lambda *_, **__: library)
    mpi.take_leave()
    assert library.calls == said


def test_where_mpi_is_not_there_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLX_MPI_LIBNAME", "libof_nobody.so")
    mpi.take_leave()


@pytest.mark.parametrize(
    ("name", "by_mpi"), [("OMPI_COMM_WORLD_RANK", True), ("PMI_RANK", True), ("MLX_RANK", False)]
)
def test_whose_process_it_is(name: str, by_mpi: bool) -> None:
    assert (held_by_mpi({name: "0"}), held_by_mlx({name: "0"})) == (by_mpi, not by_mpi)
