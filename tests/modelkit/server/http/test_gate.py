"""Who gets in: names in Host and Origin, keys, ids; and what every response carries."""

import io
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from modelkit.errors import ModelkitError, ModelNotFound
from modelkit.server.access import Access, host_of, origin_of
from modelkit.server.http import own_headers
from modelkit.server.log import Log, PromptLog
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.live_server import make_test_app, running

KEY = "a key of ours"


def nothing(name: str) -> object:
    raise ModelNotFound(f"there is no model {name}")


def client(
    access: Access, home: Path, log: Log | None = None, prompts: PromptLog | None = None
) -> TestClient:
    settings = Settings.from_environment({"MODELKIT_HOME": str(home)})
    pool = Pool(nothing)  # type: ignore[arg-type]
    serving = Serving(pool, settings, access=access, log=log or Log(io.StringIO()), prompts=prompts)
    return TestClient(make_test_app(serving), base_url="http://localhost:11434", raise_server_exceptions=True)


@pytest.fixture(scope="module")
def open_to_some(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    access = Access((), frozenset({"models.example.org"}), frozenset({"https://chat.example.org"}))
    with client(access, tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with client(Access((KEY,)), tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.mark.parametrize(
    ("written", "allowed"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("localhost:1", True),
        ("127.0.0.1:11434", True),
        ("[::1]:1", True),
        ("[::1]", True),
        ("models.example.org:8080", True),
        ("Models.Example.org.", True),
        ("[::ffff:127.0.0.1]", False),
        ("127.1", False),
        ("2130706433", False),
        ("0x7f000001", False),
        ("0.0.0.0", False),
        ("127.0.0.1.nip.io", False),
        ("localhost.evil.com", False),
        ("evil.com", False),
        ("localhost:80@evil.com", False),
        ("evil.com#localhost", False),
        ("localhost/", False),
        ("localhost:99999", False),
        ("localhost:", False),
        ("localhost localhost", False),
        ("printer.local", False),
        ("xmodels.example.org", False),
        ("::1", False),
        ("", False),
        ("h" * 60_000, False),
    ],
    ids=lambda value: str(value)[:24],
)
def test_hosts(open_to_some: TestClient, written: str, allowed: bool) -> None:
    assert (open_to_some.get("/livez", headers={"host": written}).status_code == 200) is allowed


def test_an_address_of_this_end_is_a_name_of_this_end() -> None:
    access = Access()
    assert access.host_allowed(["192.168.1.7:11434"], "192.168.1.7")
    assert not access.host_allowed(["192.168.1.7:11434"], "192.168.1.8")
    assert access.host_allowed(["192.168.1.7:11434"], "::ffff:192.168.1.7")  # of a socket for both families
    assert not access.host_allowed(["192.168.1.7:11434"], "::ffff:192.168.1.8")
    assert access.host_allowed(["[fe80::7]:11434"], "fe80::7%eth0")
    assert not access.host_allowed(["localhost", "localhost"])
    assert access.host_allowed([])  # HTTP/1.0, which no browser speaks
    assert Access(hosts=frozenset("*")).host_allowed(["anything.example.org"])


@pytest.mark.parametrize(
    ("written", "allowed"),
    [
        ("http://localhost:11434", True),
        ("HTTP://LOCALHOST:11434", True),
        ("https://chat.example.org", True),
        ("https://chat.example.org:443", True),
        ("null", False),
        ("file://", False),
        ("", False),
        ("http://localhost.evil.com", False),
        ("http://localhost:999", False),
        ("http://127.0.0.1:11434", False),
        ("https://localhost:11434", False),
        ("chrome-extension://x", False),
        ("https://chat.example.org.evil.com", False),
        ("http://chat.example.org", False),
        ("https://evil.com https://chat.example.org", False),
        ("https://" + "h" * 5000, False),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_origins(open_to_some: TestClient, method: str, written: str, allowed: bool) -> None:
    path = "/livez" if method == "GET" else "/test/echo"
    answer = open_to_some.request(
        method, path, headers={"origin": written}, json={} if method == "POST" else None
    )
    assert (answer.status_code < 400) is allowed, answer.text
    assert (answer.headers.get("access-control-allow-origin") == written) is allowed
    assert answer.headers.get("access-control-allow-credentials") is None


@pytest.mark.parametrize(
    ("name", "written", "said"),
    [
        (
            "origin",
            "HTTP://Localhost:3000",
            "http://localhost:3000 may not ask; --origins http://localhost:3000",
        ),
        ("origin", "file://", "the address that was given may not ask; see --origins"),
        ("origin", "null", "pages without an address (files, sandboxed frames) may not ask; --origins '*'"),
        ("host", "My-Mac.local:11434", "by the name my-mac.local; --allow-host my-mac.local allows it"),
        ("host", "h" * 200, "see --allow-host"),
    ],
)
def test_who_is_not_let_in_is_told_and_logged_with_what_lets_him_in(
    tmp_path: Path, name: str, written: str, said: str
) -> None:
    log = io.StringIO()
    with client(Access(), tmp_path, Log(log, as_json=True)) as here:
        answer = here.post("/test/echo", json={}, headers={name: written})
    assert answer.status_code == 403
    assert said in answer.text
    assert said in json.loads(log.getvalue())["why"]


def test_a_health_check_in_http_1_0_needs_no_name(tmp_path: Path) -> None:
    serving = Serving(Pool(nothing), Settings(home=tmp_path), log=Log(io.StringIO()))  # type: ignore[arg-type]
    with running(serving) as here, socket.create_connection(("127.0.0.1", httpx.URL(here.url).port)) as asked:
        asked.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert asked.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("localhost.:11434", "http://localhost.:11434", True),
        ("LocalHost:11434", "http://localhost:11434", True),
        ("localhost:80", "http://localhost", True),
        ("localhost", "http://localhost", True),
        ("[::1]:11434", "http://[::1]:11434", True),
        ("Models.example.org.", "http://models.example.org.", True),
        ("localhost.:11434", "http://localhost.:11435", False),
        ("localhost.", "https://localhost.", False),
        ("localhost.:11434", "http://localhost..:11434", False),
        ("localhost:11434", "http://127.0.0.1:11434", False),
        ("models.example.org", "http://models.example.org.evil.com", False),
    ],
)
def test_the_servers_own_pages_may_ask_however_its_name_is_spelt(
    open_to_some: TestClient, host: str, origin: str, allowed: bool
) -> None:
    answer = open_to_some.post("/test/echo", json={}, headers={"host": host, "origin": origin})
    assert (answer.status_code == 200) is allowed


def test_pages_of_other_sites_change_nothing(open_to_some: TestClient) -> None:
    crossing = {"sec-fetch-site": "cross-site"}
    assert open_to_some.post("/test/echo", json={}, headers=crossing).status_code == 403
    link = {**crossing, "sec-fetch-mode": "navigate"}
    assert open_to_some.post("/test/echo", json={}, headers=link).status_code == 403
    assert open_to_some.get("/livez", headers=link).status_code == 200
    picture = {**crossing, "sec-fetch-mode": "no-cors"}
    assert open_to_some.get("/livez", headers=picture).status_code == 403
    assert (
        open_to_some.post("/test/echo", json={}, headers={"sec-fetch-site": "same-origin"}).status_code == 200
    )
    plain = {"content-type": "text/plain", "origin": "http://localhost:11434"}
    assert open_to_some.post("/test/echo", content="{}", headers=plain).status_code == 415


def test_a_page_of_another_origin_can_read_our_headers(open_to_some: TestClient) -> None:
    answer = open_to_some.get("/livez", headers={"origin": "https://chat.example.org"})
    shown = answer.headers["access-control-expose-headers"].split(", ")
    assert {"x-request-id", "retry-after", *own_headers.OWN} <= set(shown)
    ours = [value for name, value in vars(own_headers).items() if name.isupper() and isinstance(value, str)]
    assert sorted(own_headers.OWN) == sorted(ours)


def test_two_origins_or_none() -> None:
    assert Access().origin_allowed([], None)
    assert not Access().origin_allowed(["http://a", "http://a"], "http://a")
    assert origin_of("https://[::1]:443") == "https://[::1]"
    assert host_of("[::1]:11434") == "::1"


@pytest.mark.parametrize("written", ["https://any.example.org", "null", "file://", "chrome-extension://x"])
def test_any_page_is_any_page(tmp_path: Path, written: str) -> None:
    """One without an address, too: a file, a frame in a sandbox."""
    with client(Access(origins=frozenset("*")), tmp_path) as here:
        asked = here.options("/test/echo", headers={"origin": written})
        answer = here.post("/test/echo", json={}, headers={"origin": written})
    assert (asked.status_code, answer.status_code) == (204, 200)
    assert answer.headers["access-control-allow-origin"] == written


KEY_HEADERS = ("authorization", "x-api-key")


@pytest.mark.parametrize("key", ["schlüssel", "voilà", "ключ"])
def test_a_key_may_have_any_letters(key: str, tmp_path: Path) -> None:
    """Most clients send UTF-8, and Python's `requests` Latin-1 where that has them."""
    with client(Access((key,)), tmp_path) as here:

        def status(*spelt: bytes) -> set[int]:
            sent = [
                {name: b"Bearer " * (name == "authorization") + one} for one in spelt for name in KEY_HEADERS
            ]
            return {here.get("/nowhere", headers=one).status_code for one in sent}

        assert status(key.encode()) == {404}
        if not key.startswith("к"):
            assert status(key.encode("latin-1")) == {404}
        assert status(b"?" * len(key), key.encode()[:-1], key.encode("unicode_escape")) == {401}


def test_a_preflight_needs_no_key(locked: TestClient) -> None:
    own = {
        "origin": "http://localhost:11434",
        "access-control-request-headers": "authorization, x-stainless-os",
    }
    answer = locked.options("/test/echo", headers=own)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-headers"] == own["access-control-request-headers"]
    assert "POST" in answer.headers["access-control-allow-methods"]


@pytest.mark.parametrize(
    ("headers", "fits"),
    [
        ({}, False),
        ({"authorization": f"Bearer {KEY}"}, True),
        ({"authorization": f"bearer {KEY}"}, True),
        ({"x-api-key": KEY}, True),
        ({"authorization": "Basic eDp5"}, False),
        ({"authorization": f"Bearer {KEY}x"}, False),
        ({"authorization": f"Bearer {KEY[:-1]}"}, False),
        ({"authorization": "Bearer "}, False),
        ({"authorization": "Bearer kä"}, False),
        ({"x-api-key": ""}, False),
    ],
    ids=str,
)
def test_keys(locked: TestClient, headers: dict[str, str], fits: bool) -> None:
    sent = {name: value.encode("latin-1") for name, value in headers.items()}
    for path in ("/test/echo", "/nowhere", "/metrics"):
        answer = locked.request("POST" if "echo" in path else "GET", path, headers=sent, json={})
        assert (answer.status_code != 401) is fits
        assert KEY not in answer.text
    assert locked.get("/livez", headers=sent).status_code == 200
    assert locked.get("/health", headers=sent).status_code == 200


@pytest.mark.parametrize(
    ("given", "kept"),
    [("abc-1.2_3", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("a\tb", False), ("", False)],
)
def test_request_ids(open_to_some: TestClient, given: str, kept: bool) -> None:
    answer = open_to_some.get("/nowhere", headers={"x-request-id": given})
    assert answer.headers["x-request-id"] == answer.headers["request-id"]
    assert (answer.headers["request-id"] == given) is kept


def test_a_server_that_changes_no_models(tmp_path: Path) -> None:
    changing = [("POST", f"/api/{name}") for name in ("pull", "push", "create", "copy", "blobs/sha256:0")]
    with client(Access(read_only=True), tmp_path) as here:
        for method, path in [*changing, ("DELETE", "/api/delete")]:
            answer = here.request(method, path, json={"model": "a"})
            assert (answer.status_code, "--read-only" in answer.text) == (403, True), path
        assert here.get("/api/tags").status_code == 200
        assert here.post("/api/generate", json={"model": "a", "prompt": "b"}).status_code == 404
    with client(Access(), tmp_path) as here:
        assert here.request("DELETE", "/api/delete", json={"model": "a"}).status_code == 404


def test_errors_are_worded_by_the_path(open_to_some: TestClient) -> None:
    unknown = open_to_some.get("/nowhere")
    assert (unknown.status_code, set(unknown.json())) == (404, {"error"})
    ours = open_to_some.get("/test/nowhere", headers={"x-request-id": "me"})
    assert (ours.status_code, ours.json()["fault"], ours.json()["id"]) == (404, "not_found", "me")
    method = open_to_some.get("/test/echo")
    assert (method.status_code, method.json()["fault"], method.headers["allow"]) == (405, "method", "POST")
    model = open_to_some.post("/test/answer", json={"model": "a", "prompt": "b"})
    assert (model.status_code, model.json()["fault"]) == (404, "model_not_found")
    assert open_to_some.get("/livez").headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("asked", "shape", "said"),
    [
        ("POST /chat/completions", "openai", "did you mean /v1/chat/completions? The base_url of OpenAI's"),
        ("GET /chat/completions", "openai", None),
        ("GET /models/amy/x", "openai", "did you mean /v1/models/amy/x?"),
        ("POST /models/load", "openai", None),
        ("POST /v1/v1/chat/completions", "openai", "/v1/chat/completions? The base_url of OpenAI's"),
        ("POST /v1/chat/completions/chat/completions", "openai", "mean /v1/chat/completions?"),
        ("POST /api/v1/chat/completions", "plain", "mean /v1/chat/completions? The base_url of"),
        ("GET /openai/v1/models", "plain", "did you mean /v1/models? The base_url of OpenAI's"),
        ("POST /openai/deployments/gpt/chat/completions", "plain", "did you mean /v1/chat/completions?"),
        ("POST /v1/threads/x/messages", "openai", None),
        ("GET /v1/health", "openai", "did you mean /health?"),
        ("POST /a/b/c/d/e/v1/chat/completions", "plain", None),
        ("DELETE /v1/v1/models/amy", "openai", None),
        ("POST /v1/v1/messages", "openai", "base_url of Anthropic's clients is the server's address alone"),
        ("POST /v1/api/chat", "openai", "The host of Ollama's clients is the server's address alone"),
        ("POST /api/api/chat", "plain", "The host of Ollama's clients is the server's address alone"),
        ("GET /ollama/api/tags", "plain", "did you mean /api/tags? The host of Ollama's"),
        ("GET /v1/chat/complete", "openai", None),
        ("POST /modelsx", "plain", None),
        ("POST /v1/chat/completions/", "openai", "did you mean /v1/chat/completions?"),
        ("GET /api/tags/", "plain", "did you mean /api/tags?"),
        ("POST /v1//messages", "openai", "did you mean /v1/messages?"),
        ("POST /messages", "plain", "add /v1/messages to a base_url"),
    ],
)
def test_a_base_address_that_is_wrong_is_said(
    open_to_some: TestClient, asked: str, shape: str, said: str | None
) -> None:
    answer = open_to_some.request(*asked.split(), json={"model": "a"})
    error = answer.json()["error"]
    message = error["message"] if shape == "openai" else error
    assert (answer.status_code, isinstance(message, str)) == (404, True)
    assert message.startswith("there is no such path here")
    assert message == "there is no such path here" if said is None else said in message


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/"])
def test_the_list_of_models_with_a_slash_behind_it(open_to_some: TestClient, path: str) -> None:
    assert open_to_some.get(path).json()["object"] == "list"


def test_what_nobody_foresaw_is_in_the_log_alone(tmp_path: Path) -> None:
    log = io.StringIO()
    with client(Access(), tmp_path, Log(log)) as here:
        answer = here.get("/test/broken")
    assert (answer.status_code, answer.json()["fault"]) == (500, "internal")
    assert "secret" not in answer.text
    assert "a secret of ours" in log.getvalue()
    assert "Traceback" in log.getvalue()


@pytest.mark.parametrize("as_json", [True, False])
def test_a_request_is_one_line(tmp_path: Path, as_json: bool) -> None:
    log = io.StringIO()
    with client(Access((KEY,)), tmp_path, Log(log, as_json=as_json)) as here:
        here.get("/no%0awhere%1b[31m status=200", headers={"authorization": f"Bearer {KEY}"})
        here.get("/livez")
    lines = log.getvalue().splitlines()
    assert len(lines) == 1
    assert KEY not in lines[0]
    assert lines[0].isprintable()
    if as_json:
        said = json.loads(lines[0])
        assert (said["status"], said["path"], said["method"]) == (404, "/no\nwhere\x1b[31m status=200", "GET")
    else:
        assert " status=404 " in lines[0]
        assert " status=200" not in lines[0].replace('[31m status=200"', "")


def test_a_line_is_short_whatever_is_asked(tmp_path: Path) -> None:
    log = io.StringIO()
    with client(Access(), tmp_path, Log(log)) as here:
        here.request("X" * 9000, "/" + "y" * 9000, headers={"x-request-id": "z" * 9000})
    (line,) = log.getvalue().splitlines()
    assert len(line) < 1000


class Gone(io.StringIO):
    """Nobody reads it any more."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_server_whose_log_nobody_reads_answers_and_stops(tmp_path: Path) -> None:
    serving = Serving(Pool(nothing), Settings(home=tmp_path), log=Log(Gone()))  # type: ignore[arg-type]
    with running(serving) as here:
        assert httpx.get(f"{here.url}/test/broken").status_code == 500
        assert httpx.get(f"{here.url}/nowhere").status_code == 404


def test_prompts_that_cannot_be_written_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the log says so, once each time that it begins."""
    log, prompts, full = io.StringIO(), PromptLog(tmp_path / "prompts"), list[int]()
    write = os.write

    def one_byte(number: int, data: bytes) -> int:
        full.append(number)
        if len(full) > 1:
            raise OSError(28, "No space left on device")
        return write(number, data[:1])

    with client(Access(), tmp_path, Log(log), prompts) as here:
        with monkeypatch.context() as patched:
            patched.setattr("modelkit.server.log.os.write", one_byte)
            for number in range(3):
                assert here.post("/test/echo", json={"n": number}).status_code == 200
        assert here.post("/test/echo", json={"n": 3}).status_code == 200
    prompts.close()
    first, *others = (tmp_path / "prompts").read_text(encoding="utf-8").splitlines()
    assert first == "{"
    assert [json.loads(one)["body"] for one in others] == [{"n": 3}]
    assert log.getvalue().count('prompts lost="no space left on device"') == 1


def test_prompts_go_to_a_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode of a device would be changed for all, and a pipe that nobody reads waited for."""
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("modelkit.server.log.os.fchmod", lambda *_: pytest.fail("its mode is changed"))
    for path in (tmp_path / "pipe", Path("/dev/null"), tmp_path):
        with pytest.raises(ModelkitError, match="cannot write"):
            PromptLog(path)


def test_prompts_are_written_where_asked(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    prompts = PromptLog(path)
    with client(Access(), tmp_path, prompts=prompts) as here:
        here.post("/test/echo", json={"text": "private"}, headers={"x-request-id": "one"})
    prompts.close()
    said = json.loads(path.read_text(encoding="utf-8"))
    assert (said["body"], said["id"]) == ({"text": "private"}, "one")
    assert path.stat().st_mode & 0o777 == 0o600
