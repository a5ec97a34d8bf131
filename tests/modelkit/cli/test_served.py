"""Commands beside a running server: it answers for `run` where it has the package, and ps, load and stop."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import modelkit
from modelkit.cli.main import cli
from modelkit.cli.terminal.ui import size
from modelkit.server.access import Access
from modelkit.server.http.place import Place
from tests.support.running_server import Running, running
from tests.support.served import wait_until
from tests.support.tiny import TEMPLATE, write_model

Run = Callable[..., Result]


def create(home: Path, name: str, *lines: str) -> None:
    (home / "Modelfile").write_text("\n".join([f"FROM {home / 'model'}", *lines]) + "\n")
    modelkit.create(home / "Modelfile", name=name, home=home)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("served")
    write_model(home / "model", template=TEMPLATE)
    create(home, "story", "PARAMETER temperature 0", "PARAMETER num_predict 8")
    with running(home) as server:
        yield server


@pytest.fixture
def run(server: Running, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command in the home of the server, once it is done with what the last test asked."""
    wait_until(lambda: not any(one.users for one in server.pool.shown()))
    monkeypatch.setenv("MODELKIT_HOME", str(server.serving.settings.home))
    monkeypatch.delenv("MODELKIT_HOST", raising=False)

    def run(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(cli, list(arguments), input=stdin, catch_exceptions=False)

    return run


@pytest.fixture
def only_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be loaded in this process but by the server."""

    def load(*_: object, **__: object) -> None:
        raise AssertionError("it was loaded here as well")

    monkeypatch.setattr(modelkit, "load", load)


ANSWERS = [
    (["run", "story", "-", "-p", "temperature=1", "-p", "seed=5", "-p", "num_predict=20"], "Once upon"),
    (["run", "story", "Once", "--raw", "-p", "num_ctx=12", "-p", "stop=zz", "-p", "stop=yy"], ""),
    (["run", "story", "Once", "--system", "Be short.", "--regex", "[ab]{30}"], ""),
    (["run", "story", "Once", "--adapter", "none"], ""),
    (["run", "story", "Once", "-p", "top_p=7"], ""),
    (["run", "story"], "Once\n/set parameter num_ctx 9\n/set parameter seed 3\n/show parameters\nb\n/bye\n"),
]


@pytest.mark.parametrize(("arguments", "stdin"), ANSWERS)
def test_the_server_answers_as_a_model_here_would(
    run: Run, arguments: list[str], stdin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = run(*arguments, "--local", stdin=stdin)
    with monkeypatch.context() as patched:
        patched.setattr(modelkit, "load", None)
        there = run(*arguments, stdin=stdin)
    assert there.exit_code == here.exit_code
    assert there.output == here.output


@pytest.mark.usefixtures("only_the_server")
def test_json_has_the_same_fields(run: Run) -> None:
    arguments = ("run", "story", "Once upon", "--json", "-p", "seed=7")
    there = json.loads(run(*arguments).stdout)
    assert there["usage"]["prompt_tokens"] == len("<user>Once upon<assistant>")
    assert there["usage"]["generated_tokens"] == len(there["ids"])
    assert {"model", "text", "ids", "reason", "stop", "seed", "usage", "load_s", "notes"} <= there.keys()
    assert (there["seed"], there["model"]) == (7, "story")


@pytest.mark.usefixtures("only_the_server")
def test_verbose_says_who_answers_and_what_it_took(run: Run, server: Running) -> None:
    said = run("run", "story", "Once", "--verbose").stderr
    assert f"answered by the server at {server.address}" in said
    assert "prompt" in said
    assert "8 tokens, cut by its length" in said


@pytest.mark.parametrize(
    "options", [["-p", "num_batch=64"], ["--cache-memory", "1MB"], ["-p", "num_ctx=100000"]]
)
def test_what_is_settled_when_a_model_is_loaded_runs_here_and_says_so(run: Run, options: list[str]) -> None:
    made = run("run", "story", "Once", *options)
    assert made.exit_code == 0
    what = options[-1].partition("=")[0] if options[0] == "-p" else "cache_memory"
    assert f"runs story without this {what}, so it is loaded here as well" in " ".join(made.stderr.split())


def test_another_package_of_that_name_runs_here(
    run: Run, server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path / "model", template=TEMPLATE, seed=9)
    create(tmp_path, "story", "PARAMETER temperature 0", "PARAMETER num_predict 8")
    monkeypatch.setenv("MODELKIT_HOME", str(tmp_path))
    monkeypatch.setenv("MODELKIT_HOST", server.address)
    beside = run("run", "story", "Once").output
    monkeypatch.setenv("MODELKIT_HOST", "127.0.0.1:1")  # nobody is there, which is no reason not to run
    assert run("run", "story", "Once").output == beside


@pytest.mark.usefixtures("only_the_server")
def test_a_package_that_only_the_server_has_runs_there(
    run: Run, server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = run("run", "story", "Once").output
    monkeypatch.setenv("MODELKIT_HOME", str(tmp_path))
    monkeypatch.setenv("MODELKIT_HOST", server.address)
    assert run("run", "story", "Once").output == there


def test_a_model_is_loaded_listed_and_let_go(run: Run) -> None:
    run("stop", "story")
    loaded = run("load", "Story", "--keep-alive", "90m")
    assert loaded.exit_code == 0, loaded.output
    assert "story:latest is loaded" in loaded.stdout
    assert "is unloaded in 90 minutes unless it is used" in loaded.stdout
    header, line, split = run("ps").stdout.splitlines()[:3]
    assert header.split() == ["NAME", "ID", "SIZE", "CONTEXT", "ROWS", "DRAFT", "UNTIL"]
    assert line.split()[0] == "story:latest"
    assert line.endswith("in 90 minutes")
    assert "weights" in split and "cached prompts" in split  # noqa: PT018
    (row,) = json.loads(run("ps", "--json").stdout)
    assert (row["name"], row["state"], row["users"]) == ("story:latest", "ready", 0)
    assert row["size_bytes"] > row["taken_bytes"] > row["weight_bytes"] > 0
    assert f"is loaded ({size(row['taken_bytes'])})" in loaded.stdout
    assert row["taken_bytes"] == row["weight_bytes"] + row["context_bytes"] + row["prefix_bytes"]
    assert 5300 < row["expires_in_s"] <= 5400
    assert "stays" in run("load", "story", "--keep-alive", "-1").stdout
    assert "forever" in run("ps").stdout
    assert run("stop", "story", "--json").exit_code == 0
    gone = run("stop", "story")
    while "is not loaded" not in gone.stderr:
        gone = run("stop", "story")
    assert gone.exit_code == 1
    while (left := json.loads(run("ps", "--json").stdout)) and left[0]["state"] == "leaving":
        pass  # it is being closed, and listed until that has ended
    assert left == []
    assert "is being unloaded again" in run("load", "story", "--keep-alive", "0").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["load", "nothing"], "nothing"),
        (["load", "./model"], "is not a model name"),
        (["load", "story", "--keep-alive", "soon"], "--keep-alive is 'soon'"),
        (["stop", "nothing"], "nothing is not loaded there"),
    ],
)
def test_what_cannot_be_done_is_one_message(run: Run, arguments: list[str], said: str) -> None:
    made = run(*arguments)
    assert (made.exit_code, made.stdout) == (1, "")
    assert said in made.stderr


@pytest.mark.parametrize("arguments", [["ps"], ["ps", "--json"], ["load", "story"], ["stop", "story"]])
@pytest.mark.parametrize("host", [None, "127.0.0.1:1"])
def test_without_a_server_they_say_what_to_do(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], host: str | None
) -> None:
    monkeypatch.setenv("MODELKIT_HOME", str(tmp_path))
    if host is not None:
        monkeypatch.setenv("MODELKIT_HOST", host)
    made = run(*arguments)
    assert (made.exit_code, made.stdout) == (1, "")
    assert (
        "no server runs here" if host is None else "no server answers at http://127.0.0.1:1"
    ) in made.stderr
    assert "`modelkit serve` starts one" in made.stderr


def test_a_server_with_a_key_on_a_socket(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields: Any = {"access": Access(keys=("secret",))}
    with running(tmp_path, Place(uds=tmp_path / "s"), **fields):
        monkeypatch.setenv("MODELKIT_HOME", str(tmp_path))
        refused = run("ps")
        assert refused.exit_code == 1
        assert "MODELKIT_API_KEY has the key" in refused.stderr
        monkeypatch.setenv("MODELKIT_API_KEY", "secret")
        assert run("ps", "--json").stdout.strip() == "[]"


def test_ctrl_c_stops_the_answer_in_the_server(run: Run, server: Running) -> None:
    home = server.serving.settings.home
    endless = ["-p", "num_predict=1000000", "-p", "context_shift=on", "--raw"]
    # A shell's background jobs have SIGINT ignored, and hand that on to what they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "modelkit", "run", "story", "Once", *endless],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "MODELKIT_HOME": str(home)},
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    process.stdout.read(1)
    (model,) = server.pool.models()
    assert model.activity.running == 1
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=100)
    assert (process.returncode, said) == (130, b"interrupted\n")
    wait_until(lambda: model.activity.running == 0)
    wait_until(lambda: [one.users for one in server.pool.shown()] == [0])  # a moment later
