"""`modelkit serve`: from its first line to its exit code."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

import modelkit
from modelkit.cli.main import cli
from modelkit.cli.pull import fetched
from modelkit.cli.serve import without_libraries
from modelkit.server.models.model_source import StoredModels
from modelkit.server.models.pool import Pool
from modelkit.server.serve import (
    ServeOptions,
    _how,  # pyright: ignore[reportPrivateUsage]
    _preload,  # pyright: ignore[reportPrivateUsage]
)
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from modelkit.store.store import Store
from tests.support.tiny import TEMPLATE, write_model

Run = Callable[..., Result]


@pytest.fixture
def stored(home: Path, created: Callable[..., None]) -> Path:
    """A store with the package `tiny`."""
    created("tiny")
    return home


@contextmanager
def served(home: Path, *options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The command itself, in a process of its own."""
    env = {**os.environ, "MODELKIT_HOME": str(home), **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "modelkit", "serve", *options],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def told(process: subprocess.Popen[str], word: str) -> str:
    """The first line with that word on standard output."""
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return line
    pytest.fail(f"no line with {word!r}")


def test_its_life(tmp_path: Path) -> None:
    """It says where it is, loads what was named, notes what is to be known of it, drains on the first signal
    and leaves on the second.
    """
    (tmp_path / "model").mkdir()
    write_model(tmp_path / "model", template=TEMPLATE, max_position_embeddings=100_000)
    (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="tiny", home=tmp_path)
    options = ("--port", "0", "--grace", "20s", "--json", "-p", "num_ctx=200000")
    with served(tmp_path, "tiny", *options) as process:
        url = told(process, "listening").split()[-1]
        assert f"curl {url}/v1/chat/completions" in told(process, "curl")
        told(process, "loaded")
        note = tmp_path / "run" / "serve.json"
        assert json.loads(note.read_text(encoding="utf-8")) == {"pid": process.pid, "url": url}
        assert note.stat().st_mode & 0o777 == 0o600
        assert httpx.get(f"{url}/health").json() == {"status": "ok"}
        messages = [{"role": "user", "content": "Hello"}]
        body: Any = {
            "model": "tiny",
            "messages": messages,
            "parameters": {"num_predict": 90_000, "temperature": 0},
        }
        with httpx.stream("POST", f"{url}/modelkit/v1/chat", json=body, timeout=20) as answer:
            pieces = answer.iter_bytes()
            next(pieces)
            process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            while httpx.get(f"{url}/health").status_code == 200 and time.monotonic() - began < 20:
                time.sleep(0.02)
            assert httpx.get(f"{url}/health").json() == {"status": "draining"}
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
        assert process.stderr is not None
        lines = [json.loads(line) for line in process.stderr.read().splitlines() if line.startswith("{")]
    said = "num_ctx 200000 is more than the model's 100000; it runs with 100000"
    assert [line["said"] for line in lines if line["event"] == "note"] == [said]


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGTERM, signal.SIGHUP), (signal.SIGHUP, signal.SIGHUP), (signal.SIGHUP, signal.SIGTERM)],
)
def test_it_ends_well(tmp_path: Path, first: signal.Signals, second: signal.Signals) -> None:
    path = tmp_path / "socket"
    # Under nohup the tests would hand on that it is ignored.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with served(tmp_path, "--uds", str(path)) as process:
        signal.signal(signal.SIGHUP, before)
        told(process, "listening")
        assert path.stat().st_mode & 0o777 == 0o600
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://localhost/livez").json() == {"status": "ok"}
        process.send_signal(first)
        process.send_signal(second)  # of a terminal that is closed come several, of a system both
        assert process.wait(30) == 0
    assert not path.exists()
    assert not (tmp_path / "run" / "serve.json").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--api-key", "secret"), "MODELKIT_API_KEY"),
        (("--api-key", "@/nowhere/at/all"), "/nowhere/at/all cannot be read: no such file or directory\n"),
        (("--origins", "chat.example.org"), "https://chat.example.org"),
        (("--allow-host", "a b"), "models.example.org"),
        (("--uds", "x", "--port", "1"), "--uds replaces"),
        (("--ranks", "2", "one", "other"), "one model at a time"),
        (("--ssl-keyfile", "x"), "--ssl-certfile"),
        (("--ssl-keyfile-password", "secret"), "MODELKIT_SSL_KEYFILE_PASSWORD"),
        (("--ssl-keyfile-password", "@/nowhere"), "/nowhere cannot be read"),
        (("--grace", "soon"), "'--grace': it is 'soon', expected seconds, or a duration such as"),
        (("--max-body", "much"), "number of bytes"),
        (("--max-body", "16"), "'--max-body': it is 16 B, expected at least 1 kB"),
        (("--memory", "5"), "'--memory': it is 5 B, expected at least 1 MB. Example: 5GB."),
    ],
)
def test_wrong_usage(run: Run, options: tuple[str, ...], said: str) -> None:
    result = run("serve", *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "secret" not in result.stderr.replace("@FILE", "")


@pytest.mark.parametrize("options", [(), ("--default-model",)], ids=["loaded", "default"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nosuchmodel", "no model nosuchmodel in the store"),
        ("tinny", "Did you mean tiny?"),
        ("tiny:q4", "Did you mean tiny?"),
        ("./model", "'./model' is a path, and only packages of the store are served"),
        ("a b", "it has a blank in it"),
    ],
)
def test_what_cannot_be_served_is_refused_before_the_port_opens(
    run: Run, name: str, said: str, options: tuple[str, ...], stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelkit.server.serve.listen", lambda _: pytest.fail("it listens"))
    result = run("serve", *options, name, "--port", "0")
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stdout == ""


def test_a_stored_name_that_is_an_address_is_never_fetched(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client can copy a package to any name."""
    Store(stored).copy("tiny", "hf.co/amy/tiny")
    monkeypatch.setattr("modelkit.pack.pulling.pull", lambda *_, **__: pytest.fail("it fetches"))
    source = StoredModels(Settings.from_environment({"MODELKIT_HOME": str(stored)}))
    nobody: Any = SimpleNamespace(memory=lambda *_: None, weights=lambda _: None)
    source.load(source.find("hf.co/amy/tiny"), nobody).close()
    assert fetched("hf.co/amy/tiny", quiet=True) == "hf.co/amy/tiny"


def test_a_damaged_package_is_refused_before_the_port_opens(
    run: Run, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelkit.server.serve.listen", lambda _: pytest.fail("it listens"))
    config = next(one for one in Store(stored).resolve("tiny").files.items() if one[0] == "config.json")[1]
    config.chmod(0o644)
    config.write_bytes(config.read_bytes().replace(b"llama", b"lama!"))
    result = run("serve", "tiny", "--port", "0")
    assert (result.exit_code, "config.json is damaged" in result.stderr) == (1, True)


@pytest.mark.parametrize("damage", [b"\xff" * 8, b"\x00" * 8])
def test_damaged_headers_of_weights_are_found_before_the_port_opens(
    damage: bytes, run: Run, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelkit.server.serve.listen", lambda _: pytest.fail("it listens"))
    weights = Store(stored).resolve("tiny").files["model.safetensors"]
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes()[:20] + damage + weights.read_bytes()[28:])
    result = run("serve", "tiny", "--port", "0")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "model.safetensors: the header is not valid" in result.stderr


def test_a_model_that_is_loaded_shows_a_sign_of_life(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as it is loaded, and lines of the log are written around it."""
    shown = list[str]()

    @contextmanager
    def waiting(label: str, **_: Any) -> Iterator[None]:
        shown.append(label)
        yield
        shown.append("over")

    monkeypatch.setattr("modelkit.cli.serve.Waiting", waiting)
    wanted = list[Any]()

    def serve(*given: Any) -> None:
        wanted[:] = given

    monkeypatch.setattr("modelkit.server.serve.serve", serve)
    assert CliRunner().invoke(cli, ["serve", "tiny"], env={"MODELKIT_HOME": str(stored)}).exit_code == 0
    asked, _, wait = wanted
    said = list[str]()

    async def preload() -> None:
        pool = Pool(StoredModels(asked.settings, cache_memory=0))
        await _preload(asked.names, Serving(pool, asked.settings), said.append, wait)
        await pool.close()

    asyncio.run(preload())
    assert shown == ["loading tiny", "over"]
    assert said[0].startswith("tiny is loaded, in ")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), ("/v1/chat/completions", "NAME", "messages")),
        (("story",), ("/v1/chat/completions", "story", "messages")),
        (("vectors", "story"), ("/v1/chat/completions", "story", "messages")),
        (("vectors",), ("/v1/embeddings", "vectors", "input")),
    ],
)
def test_the_request_to_try_is_one_that_is_answered(
    names: tuple[str, ...], expected: tuple[str, str, str]
) -> None:
    wanted = ServeOptions(Settings(Path("home")), names)
    *_, line = _how("http://127.0.0.1:11434", wanted, {"story": True, "vectors": False})
    path, _, body = line.partition(" -d ")
    asked = json.loads(body.strip("'"))
    assert (path.rpartition(":11434")[2], asked["model"], list(asked)[1]) == expected


def test_the_libraries_are_an_extra() -> None:
    said = without_libraries(ImportError("no uvicorn", name="uvicorn.config"))
    assert "modelkit-mlx[serve]" in str(said)
    bug = ImportError("no numpy", name="numpy")
    assert without_libraries(bug) is bug
