"""`modelkit serve`: from its first line to its exit code."""

import asyncio
import errno
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner, Result

import modelkit
from modelkit.cli.main import cli
from modelkit.cli.pull import fetched
from modelkit.cli.serve import KEY, PASSWORD, without_libraries
from modelkit.errors import ModelkitError
from modelkit.server.announce import announce, withdraw
from modelkit.server.http.place import Place, address_of, listen
from modelkit.server.models.pool import Pool
from modelkit.server.models.stored import StoredModels
from modelkit.server.serve import _preload  # pyright: ignore[reportPrivateUsage]
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from modelkit.settings.serving import key_password, server_address, server_key
from modelkit.store.store import Store
from tests.support.tiny import TEMPLATE, write_model

Run = Callable[..., Result]
TLS = Path(__file__).parents[2] / "data" / "tls"


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """The command in this process."""
    return request.getfixturevalue("modelkit")


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


def test_a_port_in_use(run: Run) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = run("serve", "--port", str(other.getsockname()[1]))
    assert result.exit_code == 1
    assert "cannot listen on 127.0.0.1" in result.stderr
    assert "--port" in result.stderr


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
        (("--grace", "soon"), "a duration such as"),
        (("--max-body", "much"), "number of bytes"),
        (("--max-body", "16"), "--max-body is 16 B, expected at least 1 kB"),
        (("--memory", "5"), "--memory is 5 B, expected at least 1 MB. Example: 5GB."),
    ],
)
def test_wrong_usage(run: Run, options: tuple[str, ...], said: str) -> None:
    result = run("serve", *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "secret" not in result.stderr.replace("@FILE", "")


def test_a_certificate_that_is_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nonsense", encoding="utf-8")
    result = run("serve", "--port", "0", "--ssl-certfile", str(tmp_path / "cert.pem"))
    assert (
        result.exit_code,
        "the certificate cannot be used: it, or its key, is not a PEM" in result.stderr,
    ) == (1, True)
    result = run("serve", "--port", "0", "--ssl-certfile", str(tmp_path / "none.pem"))
    assert f"the certificate cannot be used: No such file or directory: '{tmp_path}" in result.stderr


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
    ("error", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "The port goes to --port"),
        (UnicodeError("label empty or too long"), "The port goes to --port"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign"), "--host takes an address of this machine"),
        (OSError(errno.EACCES, "Permission denied"), "--port takes a higher number"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "Another server may be there"),
    ],
)
def test_why_it_cannot_listen_says_what_to_do(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("modelkit.server.http.place.socket.getaddrinfo", refuse)
    with pytest.raises(ModelkitError, match=f"cannot listen on x:1(.|\n)*{said}"):
        listen(Place("x", 1))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", ("127.0.0.1", 11434)),
        ("0.0.0.0", ("0.0.0.0", 11434)),
        ("studio:8080", ("studio", 8080)),
        ("http://studio:8080/", ("studio", 8080)),
        ("[::1]:5", ("::1", 5)),
        ("a b", None),
        ("x:99999", None),
        ("studio:", None),
        ("a.b.:1", ("a.b.", 1)),
        ("a..b", None),
        ("a" * 64, None),
    ],
)
def test_the_surroundings_say_where(text: str, place: tuple[str, int] | None) -> None:
    from modelkit.errors import ParameterError

    if place is None:
        with pytest.raises(ParameterError, match="MODELKIT_HOST"):
            server_address({"MODELKIT_HOST": text})
    else:
        assert server_address({"MODELKIT_HOST": text}) == place


def test_the_key_comes_from_a_file_or_the_surroundings(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(" one \n", encoding="utf-8")
    assert KEY.convert(f"@{tmp_path / 'key'}", None, None) == "one"
    assert (server_key({"MODELKIT_API_KEY": " two "}), server_key({})) == ("two", None)


def test_a_key_that_no_client_could_send_is_refused(run: Run, tmp_path: Path) -> None:
    """A server would start with it, and nobody would ever get in."""
    (tmp_path / "keys").write_text("one\ntwo\n", encoding="utf-8")
    result = run("serve", "--port", "0", "--api-key", f"@{tmp_path / 'keys'}")
    assert (result.exit_code, "keys has several lines" in result.stderr) == (2, True)
    assert "two" not in result.stderr
    with pytest.raises(ModelkitError, match="MODELKIT_API_KEY has several lines") as error:
        server_key({"MODELKIT_API_KEY": "one\ntwo"})
    assert "two" not in str(error.value)


def test_a_key_without_end_is_refused_and_not_cut(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a" * 5000, encoding="utf-8")
    with pytest.raises(click.BadParameter, match="key has more than 4,096 bytes"):
        KEY.convert(f"@{tmp_path / 'key'}", None, None)


def test_a_password_keeps_its_blanks(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("a word \r\n", encoding="utf-8")
    assert PASSWORD.convert(f"@{tmp_path / 'word'}", None, None) == "a word "
    assert key_password({"MODELKIT_SSL_KEYFILE_PASSWORD": " two "}) == " two "
    assert key_password({}) is None


def test_a_locked_key_needs_its_password(run: Run, tmp_path: Path) -> None:
    """Without one nobody is asked at a terminal, and a wrong one is told from a wrong certificate."""
    files = "--ssl-certfile", str(TLS / "certificate.pem"), "--ssl-keyfile", str(TLS / "encrypted.pem")
    result = run("serve", "--port", "0", *files)
    assert result.exit_code == 1
    assert "encrypted.pem is encrypted" in result.stderr
    assert "--ssl-keyfile-password @FILE" in result.stderr
    (tmp_path / "word").write_text("no word\n", encoding="utf-8")
    result = run("serve", "--port", "0", *files, "--ssl-keyfile-password", f"@{tmp_path / 'word'}")
    assert result.exit_code == 1
    assert "Is that the password of its key?" in result.stderr
    assert "no word" not in result.stderr
    result = run("serve", "--ssl-keyfile-password", f"@{tmp_path / 'word'}")
    assert (result.exit_code, "--ssl-certfile is missing" in result.stderr) == (2, True)


def test_the_password_of_a_key_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the options say is what opens the key."""
    (tmp_path / "word").write_text("a word \n", encoding="utf-8")
    files = ["--ssl-certfile", str(TLS / "certificate.pem"), "--ssl-keyfile", str(TLS / "encrypted.pem")]
    seen: list[Place] = []
    monkeypatch.setattr("modelkit.server.serve.serve", lambda wanted, *_: seen.append(wanted.place))
    given = [["--ssl-keyfile-password", f"@{tmp_path / 'word'}"], []]
    for options, variable in zip(given, ("", "a word "), strict=True):
        monkeypatch.setenv("MODELKIT_SSL_KEYFILE_PASSWORD", variable)
        done = CliRunner().invoke(cli, ["serve", *files, *options])
        assert done.exit_code == 0, done.output
    assert len(seen) == 2
    for place in seen:
        assert "a word" not in repr(place)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(place.certificate or "", place.key, place.password)


def test_the_libraries_are_an_extra() -> None:
    said = without_libraries(ImportError("no uvicorn", name="uvicorn.config"))
    assert "modelkit-mlx[serve]" in str(said)
    bug = ImportError("no numpy", name="numpy")
    assert without_libraries(bug) is bug


def test_two_servers_of_one_home(tmp_path: Path) -> None:
    """The file is that of the first that runs, and only its owner removes it."""
    path = announce(tmp_path, "http://127.0.0.1:1")
    assert path is not None
    with socket.create_server(("127.0.0.1", 0)) as other, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        for url in (f"http://127.0.0.1:{other.getsockname()[1]}", f"unix:{tmp_path / 'socket'}"):
            path.write_text(json.dumps({"pid": os.getppid(), "url": url}), encoding="utf-8")
            assert announce(tmp_path, "http://127.0.0.1:3") is None
            withdraw(path)
            assert path.exists()
    # A server that was killed has left the file, and its number is another program's by now.
    numbers = [
        json.dumps({"pid": os.getppid(), "url": one}) for one in (url, "http://[::1]:1", "http://x:99999")
    ]
    ours = json.dumps({"pid": os.getppid(), "url": "http://127.0.0.1:4"})
    for left_over in (*numbers, ours, '{"pid": 999999999, "url": ""}', "nonsense", "[]", '{"pid": true}'):
        path.write_text(left_over, encoding="utf-8")
        assert announce(tmp_path, "http://127.0.0.1:4") == path
        assert json.loads(path.read_text(encoding="utf-8"))["pid"] == os.getpid()
    withdraw(path)
    assert not path.exists()


def test_a_socket_that_is_left_over_is_taken_again(tmp_path: Path) -> None:
    place = Place(uds=tmp_path / "socket")
    (first,) = listen(place)
    with pytest.raises(ModelkitError, match="another server"):
        listen(place)
    first.close()
    (second,) = listen(place)
    assert address_of(second, place) == f"unix:{tmp_path / 'socket'}"
    second.close()


def test_a_file_is_no_socket_that_was_left_over(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("of somebody", encoding="utf-8")
    result = run("serve", "--uds", str(file))
    assert (result.exit_code, "a file is there" in result.stderr) == (1, True)
    assert file.read_text(encoding="utf-8") == "of somebody"


def test_a_place_where_no_socket_can_be_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ModelkitError, match="cannot listen on"):
        listen(Place(uds=tmp_path / "folder"))
    assert {one.name for one in tmp_path.iterdir()} == {"folder", "link"}


def test_localhost_is_both_loopback_addresses() -> None:
    listeners = listen(Place("localhost", 0))
    assert {one.getsockname()[1] for one in listeners} == {listeners[0].getsockname()[1]}
    for one in listeners:
        one.close()
