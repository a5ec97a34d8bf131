"""`modelkit run` on several ranks, as processes of its own and as a launcher starts them."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import click
import pytest

import modelkit
from modelkit.cli.options.ranks import follows
from modelkit.prefixes import prefix_folder
from modelkit.ranks.current import current_group
from runtime.cache.page_folder import list_pages
from tests.support import ranks
from tests.support.peft_folders import gguf_case, write_peft
from tests.support.tiny import CONFIG, llama_shapes, write_model

ASKED = ["Once upon", "-p", "temperature=0.8", "-p", "seed=4", "-p", "num_predict=8", "--json"]
SHAPE = "[a-z ]{4,7}"
RUN = [sys.executable, "-W", "ignore", "-m", "modelkit", "run", "./model", *ASKED, "--regex", SHAPE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = tmp_path_factory.mktemp("ranks")
    write_model(there / "model", num_hidden_layers=4, seed=3)
    write_peft(there / "verse", gguf_case(llama_shapes({**CONFIG, "num_hidden_layers": 4})))
    return there


@pytest.fixture(scope="module")
def alone(folder: Path) -> str:
    with modelkit.load(folder / "model") as model:
        return model.generate("Once upon", temperature=0.8, seed=4, num_predict=8, regex=SHAPE).text


def _said(folder: Path, *words: str) -> str:
    env = os.environ | {"PYTHONPATH": str(ranks.ROOT), "MODELKIT_HOME": str(folder / "home")}
    done = subprocess.run(
        [RUN[0], "-P", *RUN[1:], *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["text"]


def test_processes_of_its_own_say_the_same(folder: Path, alone: str, tmp_path: Path) -> None:
    """Of its own program, whatever lies where somebody works: they once ran another, by other kernels."""
    assert re.fullmatch(SHAPE, alone)
    (tmp_path / "model").symlink_to(folder / "model")
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "__init__.py").touch()
    assert _said(tmp_path, "--ranks", "2") == alone


def test_parts_for_ranks_that_there_are_not_are_refused(folder: Path) -> None:
    with pytest.raises(modelkit.errors.LoadError, match="there are no ranks"):
        modelkit.load(folder / "model", shards=2)


@pytest.mark.parametrize(
    ("name", "ranks", "words"), [("model", 5, "4 layers, too few for 5 stages"), ("nothing", 2, "nothing")]
)
def test_a_process_that_cannot_load_it_on_ranks_stays_alone(
    name: str, ranks: int, words: str, folder: Path
) -> None:
    """It would keep them, and be one of so many for every other model."""
    with pytest.raises(modelkit.errors.ModelkitError, match=words):
        modelkit.load(folder / name, ranks=ranks)
    assert current_group() is None


SHARED = """
import json, modelkit
said = []
for adapters in ([], ["./verse"], ["./verse"]):
    with modelkit.load("./model", ranks=2, shards=2, adapters=adapters) as model:
        said.append(model.generate("Once upon", temperature=0.8, seed=4, num_predict=6).text)
    held = [model.memory.weight_bytes]
with modelkit.load("./model", ranks=2) as model:
    held.append(model.memory.weight_bytes)
print(json.dumps([*said, held]))
"""


def test_shared_layers_say_the_same_again_and_again(folder: Path) -> None:
    """The second time on the ranks that are there; adapters beside the model are theirs, too. What is said of
    its weights is of all ranks: in stages what one machine holds, in shards what is repeated as well.
    """
    command = [sys.executable, "-W", "ignore", "-c", SHARED]
    env = os.environ | {"PYTHONPATH": str(ranks.ROOT)}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    plain, first, second, (shards, stages) = json.loads(done.stdout)
    assert plain != first == second != ""
    with modelkit.load(folder / "model") as model:
        assert stages == model.memory.weight_bytes < shards < 1.5 * stages


def _launched(
    folder: Path, rank_1: Path, command: list[str] = RUN, **on_rank_1: str
) -> list[subprocess.CompletedProcess[str]]:
    """As `mlx.launch` does it: the same command on two ranks, and a pipe that nobody closes. on_rank_1: what
    its environment has beside.
    """
    environments = ranks.environments(folder, 2)
    environments[1] |= on_rank_1
    processes = [
        subprocess.Popen(
            command,
            cwd=cwd,
            env=env | {"MODELKIT_HOME": str(cwd / "home"), "MODELKIT_CACHE_DISK": "1GB"},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for cwd, env in zip([folder, rank_1], environments, strict=True)
    ]
    try:
        for process in processes:
            process.wait(240)
        return [
            subprocess.CompletedProcess(command, process.returncode, *process.communicate())
            for process in processes
        ]
    finally:
        ranks.stop(processes)


def test_a_launched_process_leads_or_follows(folder: Path, alone: str, tmp_path: Path) -> None:
    """And is given what it needs of the package, which it has not, adapters and all, and has no package then;
    each keeps its part of pages.
    """
    (folder / "Modelfile").write_text("FROM ./model\nADAPTER ./verse\n")
    modelkit.create(folder / "Modelfile", name="story", home=folder / "home")
    command = ["story" if word == "./model" else word for word in RUN]
    first, second = _launched(folder, tmp_path, command)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    with modelkit.load("story", home=folder / "home") as model:
        answer = model.generate("Once upon", temperature=0.8, seed=4, num_predict=8, regex=SHAPE)
    assert json.loads(first.stdout)["text"] == answer.text != alone
    assert second.stdout == ""
    assert modelkit.list(home=tmp_path / "home") == []
    store = tmp_path / "home" / "store"
    assert ([*(store / "blobs" / "sha256").iterdir()], len([*(store / "slices").iterdir()])) == ([], 1)
    assert all(list_pages(prefix_folder(root / "home")) for root in (folder, tmp_path))


def test_files_that_are_named_are_those_of_rank_0(folder: Path, tmp_path: Path) -> None:
    """Its key is a secret of its own, and no other machine has to have one."""
    (folder / "key.txt").write_text("sesame\n")
    command = [*RUN[: RUN.index("run")], "serve", "nobody", "--api-key", "@key.txt"]
    first, second = _launched(folder, tmp_path, command)
    assert "there is no model nobody" in first.stderr
    assert (second.returncode, second.stderr) == (0, "")


def test_an_interrupt_is_for_the_rank_that_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a terminal reaches all that a launcher has started there."""
    found = list[object]()

    def follow(_crew: object) -> int:
        found.append(signal.getsignal(signal.SIGINT))
        return 0

    monkeypatch.setattr("modelkit.cli.options.ranks.one_of_several", lambda: True)
    monkeypatch.setattr("modelkit.ranks.rendezvous.join", lambda: SimpleNamespace(rank=1))
    monkeypatch.setattr("modelkit.ranks.follower.follow", follow)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(click.exceptions.Exit):
            follows(click.Context(click.Command("run")), None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert found == [signal.SIG_IGN]


REFUSED = """
import json, os, sys, modelkit
from modelkit.ranks.follower import follow
from modelkit.ranks.rendezvous import join
crew = join()
if crew.rank:
    sys.exit(follow(crew))
said = []
for name in ("./other", "./here", "./model"):
    try:
        with modelkit.load(name) as model:
            said += [model.generate("Once", num_predict=2).reason, " ".join(model.notes)]
    except modelkit.errors.LoadError as error:
        said.append(str(error))
print(json.dumps(said))
"""


def test_another_model_elsewhere_and_one_that_is_not_there_are_refused(folder: Path, tmp_path: Path) -> None:
    """And nothing has to be started again. One that computes in another way is named, not refused."""
    for name in ("other", "here"):
        (folder / name).symlink_to(folder / "model")
    (tmp_path / "model").symlink_to(folder / "model")
    write_model(tmp_path / "other", num_hidden_layers=3, seed=3)
    command = [sys.executable, "-W", "ignore", "-c", REFUSED]
    first, second = _launched(folder, tmp_path, command, MODELKIT_KERNELS="off")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    other, here, whole, notes = json.loads(first.stdout)
    assert "it cannot be run on 2 ranks: rank 1" in other
    assert "has package sha256:" in other
    assert "rank 1" in here
    assert "here" in here.partition("says: ")[2]
    assert whole == "length"
    assert re.search(r"rank 1 .* computes by MLX .* MODELKIT_KERNELS=off is set, and rank 0", notes)


def test_machines_are_examined(folder: Path, tmp_path: Path) -> None:
    (folder / "Modelfile").write_text("FROM ./model\n")
    modelkit.create(folder / "Modelfile", name="story", home=folder / "home")
    command = [sys.executable, "-W", "ignore", "-m", "modelkit", "doctor", "--hosts", "--json"]
    first, second = _launched(folder, tmp_path, command)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    here, there = json.loads(first.stdout)["ranks"]
    assert (here["packages"], here["lacks"]) == (1, [])
    assert (there["packages"], there["lacks"]) == (0, ["story:latest"])
    assert 0 < here["link"]["delay_s"] < 1
    assert here["link"]["bytes_per_s"] > 1e5
    assert there["link"] is None


LAUNCHER = """
import json, subprocess, sys
environments, command = json.loads(sys.argv[1]), sys.argv[2:]
held = [
    subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for env in environments
]
print(*(process.pid for process in held), flush=True)
sys.stdin.read()
"""
"""As `mlx.launch`: it holds the pipes of all that it has started."""
ENDLESS = [
    *RUN[:7],
    "a",
    "--json",
    "--verbose",
    "--regex",
    "[a-z]{90000}",
    "-p",
    "num_predict=100000",
    "-p",
    "num_ctx=200000",
]


def test_an_answer_ends_with_the_launcher_that_was_killed(tmp_path: Path) -> None:
    """Nobody would read it, and with --json nothing is written that could fail before it is whole."""
    write_model(tmp_path / "model", num_hidden_layers=4, seed=3, max_position_embeddings=200_000)
    environments = [env | {"MODELKIT_HOME": str(tmp_path)} for env in ranks.environments(tmp_path, 2)]
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, json.dumps(environments), *ENDLESS],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with launcher:
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        pids = [int(pid) for pid in launcher.stdout.readline().split()]
        try:
            assert _read_until(launcher.stderr, b"loaded in", within_s=200)
            launcher.kill()
            assert _read_until(launcher.stderr, None, within_s=60)
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            launcher.kill()


def _read_until(stream: IO[bytes], words: bytes | None, within_s: float) -> bool:
    """None: its end, when all that could write to it have ended."""
    until_s, seen = time.monotonic() + within_s, b""
    while (left_s := until_s - time.monotonic()) > 0:
        if not select.select([stream], [], [], left_s)[0]:
            return False
        piece = os.read(stream.fileno(), 4096)
        seen += piece
        if not piece or (words and words in seen):
            return bool(piece) == bool(words)
    return False
