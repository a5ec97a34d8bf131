"""What a client can take from the server is bounded. Each limit is met here by a client that is after it."""

import hashlib
import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.errors import ModelNotFound
from modelkit.model import Model
from modelkit.server.extent import Extent
from modelkit.server.limits import SMALL_BODY_BYTES, Limits
from modelkit.server.log import Log
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.live_server import Running, connect, raw_request, received, running
from tests.support.served import wait_until
from tests.support.tiny import write_model

PATIENT = Limits(body_bytes=20_000, header_bytes=8_000, connections=12, depth=16)
HASTY = replace(PATIENT, body_s=0.4, header_s=0.4, idle_s=60, write_s=0.4)


def no_model(name: str) -> Model:
    raise ModelNotFound(name)


def waiting_server(home: Path, **limits: Any) -> AbstractContextManager[Running]:
    """One without a model, that waits for what is not limited here for longer than any test does."""
    settings = Settings.from_environment({"MODELKIT_HOME": str(home)})
    limits = {"header_s": 120.0, "idle_s": 120.0, **limits}
    return running(Serving(Pool(no_model), settings, Limits(**limits), log=Log(io.StringIO())))


@contextmanager
def server_of(home: Path, limits: Limits) -> Iterator[Running]:
    folder = write_model(home / "model", max_position_embeddings=200_000)
    pool = Pool(lambda name: modelkit.load(folder, home=home))
    settings = Settings.from_environment({"MODELKIT_HOME": str(home)})
    with running(Serving(pool, settings, limits, log=Log(io.StringIO()))) as here:
        yield here


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """It waits for a client as a server does, since a busy machine may take its time."""
    with server_of(tmp_path_factory.mktemp("home"), PATIENT) as here:
        yield here


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """It waits for half a second."""
    with server_of(tmp_path_factory.mktemp("home"), HASTY) as here:
        yield here


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def asked(served: Running, data: bytes) -> bytes:
    with connect(served.port) as client:
        client.sendall(data)
        return received(client, until=b"\r\n\r\n")


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b'{"a": 1}', (), 200),
        (b"", (), 400),
        (b"   ", (), 400),
        (b"[]", (), 400),
        (b"null", (), 400),
        (b'{"a": 1', (), 400),
        (b'{"a": 1, "a": 2}', (), 400),
        (b'{"a": NaN}', (), 400),
        (b'{"a": -Infinity}', (), 400),
        (b'{"a": 1e999}', (), 400),
        (b'{"a": "\\ud800"}', (), 400),
        (b'{"a": "\xff"}', (), 400),
        (b'{"a":' * 17 + b"1" + b"}" * 17, (), 400),
        (b'{"a":' * 3000, (), 400),
        (b'{"a": ' + b"9" * 5000 + b"}", (), 400),
        (b'{"a": "' + b"x" * 20_000 + b'"}', (), 413),
        (b'{"a": 1}', ("Content-Encoding: gzip",), 415),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_bodies(served: Running, body: bytes, headers: tuple[str, ...], expected: int) -> None:
    assert status(asked(served, raw_request("/test/echo", body, *headers))) == expected


def test_a_body_without_a_length_is_bounded_too(served: Running) -> None:
    with connect(served.port) as client:
        head = b"POST /test/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.sendall(head + b"".join(b"1000\r\n" + b" " * 4096 + b"\r\n" for _ in range(6)))
        assert status(received(client, until=b"\r\n\r\n")) == 413


def test_large_bodies_are_bounded_together(tmp_path: Path) -> None:
    """One that has not come yet counts, and one that is over counts no more."""
    body = b'{"a": "' + b"x" * (SMALL_BODY_BYTES + 1000) + b'"}'
    large = raw_request("/test/echo", body)
    with waiting_server(tmp_path, body_bytes=len(body) + 1000, bodies=1) as here:
        for _ in range(3):
            assert status(asked(here, large)) == 200
        with connect(here.port) as coming:
            coming.sendall(large[:-10])
            wait_until(lambda: here.serving.state.body_bytes == len(body) - 10)
            answer = asked(here, large)
            assert status(answer) == 503
            assert b"\r\nretry-after: 5\r\n" in answer
            assert status(asked(here, raw_request("/test/echo", b'{"a": 1}'))) == 200
            coming.sendall(large[-10:])
            assert status(received(coming, until=b"\r\n\r\n")) == 200
        assert status(asked(here, large)) == 200
        with connect(here.port) as leaving:
            leaving.sendall(large[:-10])
            wait_until(lambda: here.serving.state.body_bytes > 0)
        wait_until(lambda: here.serving.state.body_bytes == 0)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": {"b": [0, 0, 0, 0]}}', 200),
        (b'{"a": ":::[[[{{{,,,,,,"}', 200),
        (b'{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}', 413),
        (b'{"a": [[], [], [], []]}', 413),
        (b'{"a": [0, 0, 0, 0, 0, 0]}', 413),
        (b'{"a": ' + b"[" * 17, 413),
    ],
)
def test_what_a_body_holds_is_bounded(tmp_path: Path, body: bytes, expected: int) -> None:
    with waiting_server(tmp_path, extent=Extent(parts=5, values=4)) as here:
        assert status(asked(here, raw_request("/test/echo", body))) == expected


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("text/plain", (), 415),
        ("multipart/form-data", (), 415),
        ("application/json; charset=utf-8", (), 200),
        ("application/problem+json", (), 200),
        ("application/x-www-form-urlencoded", (), 200),
        ("application/x-www-form-urlencoded", ("Sec-Fetch-Site: none",), 415),
        ("application/octet-stream", (), 200),
        ("application/octet-stream", ("Sec-Fetch-Site: none",), 415),
    ],
)
def test_only_json_is_read(served: Running, kind: str, more: tuple[str, ...], expected: int) -> None:
    lines = ["POST /test/echo HTTP/1.1", "Host: localhost", "Content-Length: 2", f"Content-Type: {kind}"]
    assert status(asked(served, "\r\n".join([*lines, *more, "", "{}"]).encode())) == expected


def closed_within(client: socket.socket, limit_s: float = 100) -> bool:
    client.settimeout(limit_s)
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("said", [b"", b"GET /livez HTTP/1.1\r\nHost: local", b"\r\n", b"\x16\x03\x01"])
def test_header_lines_come_in_time(hasty: Running, said: bytes) -> None:
    with connect(hasty.port) as client:
        client.sendall(said)
        assert closed_within(client)


def test_a_drip_of_header_lines_is_no_excuse(hasty: Running) -> None:
    with connect(hasty.port) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\n")
        flood(client, b"X-A: b\r\n", pause_s=0.05)


def test_the_second_request_has_as_much_time_as_the_first(hasty: Running) -> None:
    with connect(hasty.port) as client:
        client.sendall(raw_request("/livez", method="GET"))
        assert status(received(client, until=b'"ok"}')) == 200
        time.sleep(0.6)  # longer than header_s
        client.sendall(raw_request("/livez", method="GET"))
        assert status(received(client, until=b'"ok"}')) == 200
        client.sendall(b"GET /livez HT")
        assert closed_within(client)


def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    with waiting_server(tmp_path, idle_s=0.3) as served, connect(served.port) as client:
        client.sendall(raw_request("/livez", method="GET"))
        assert closed_within(client)


def test_a_body_comes_in_time(hasty: Running) -> None:
    with connect(hasty.port) as client:
        client.sendall(raw_request("/test/echo", b'{"a": 1}')[:-4])
        assert status(received(client, until=b"\r\n\r\n")) == 408


def test_a_file_that_comes_no_further_is_given_up(hasty: Running) -> None:
    data = b"some bytes, one after the other"
    digest = hashlib.sha256(data).hexdigest()
    staging = hasty.serving.settings.home / "staging"
    with connect(hasty.port) as client:
        client.sendall(raw_request(f"/api/blobs/sha256:{digest}", data)[: -len(data)])
        for place in range(len(data)):  # slowly, and in more than body_s altogether
            client.sendall(data[place : place + 1])
            time.sleep(0.03)
        assert status(received(client, until=b"\r\n\r\n")) == 201
    with connect(hasty.port) as client:
        client.sendall(raw_request(f"/api/blobs/sha256:{'0' * 64}", data)[:-4])
        assert status(received(client, until=b"}")) == 408
    assert [one.name for one in staging.iterdir()] == [digest]


def test_too_many_header_bytes(served: Running) -> None:
    answer = asked(served, raw_request("/livez", b"", f"X-A: {'b' * 9_000}", method="GET"))
    assert status(answer) == 431
    assert b"\r\nconnection: close\r\n" in answer
    with connect(served.port) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        flood(client, b"X-A: " + b"b" * 1000 + b"\r\n", pause_s=0.01)
    with connect(served.port) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"b" * 50_000)
        answer = received(client)
    assert status(answer) == 431
    assert answer.endswith(b'{"error": "the header lines are too long"}')


def flood(client: socket.socket, data: bytes, limit_s: float = 100, pause_s: float = 0) -> None:
    """Send that again and again, until nobody takes it any more."""
    began = time.monotonic()
    try:
        while time.monotonic() - began < limit_s:
            client.sendall(data)
            time.sleep(pause_s)
    except (BrokenPipeError, ConnectionResetError):
        return
    pytest.fail("the server takes everything")


def test_a_body_that_was_refused_is_not_read_for_ever(hasty: Running) -> None:
    with connect(hasty.port) as client:
        head = "POST /test/echo HTTP/1.1", "Host: localhost", "Content-Length: 1000000000000", "", ""
        client.sendall("\r\n".join(head).encode())
        assert status(received(client, until=b"\r\n\r\n")) == 413
        flood(client, b" " * 1000)


@pytest.mark.parametrize(
    "lines",
    [
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "POST /test/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /test/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "POST /test/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n{}",
        "GET /li\0vez HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "NONSENSE\r\n\r\n",
    ],
)
def test_requests_that_two_readers_read_differently(served: Running, lines: str) -> None:
    assert status(asked(served, lines.encode())) in (0, 400, 403)


@pytest.mark.parametrize(
    ("target", "host", "expected"),
    [
        ("http://localhost/livez", "localhost", 200),
        ("HTTP://127.0.0.1:11434/livez?x=1", "127.0.0.1:11434", 200),
        ("https://localhost/%6civez", "localhost", 200),
        ("http://localhost", "localhost", 200),
        ("http://localhost?x", "localhost", 200),
        ("http://localhost/livez", "evil.example", 200),  # the address holds, not the line
        ("http://localhost/nowhere", "localhost", 404),
        ("http://evil.example/livez", "localhost", 403),
        ("http://amy@localhost/livez", "localhost", 403),
        ("http:///livez", "localhost", 403),
        ("ftp://localhost/livez", "localhost", 404),
    ],
)
def test_a_target_may_be_a_whole_address(served: Running, target: str, host: str, expected: int) -> None:
    """As clients write it that take the server for a proxy; its host is held to the rules of names."""
    with connect(served.port) as client:
        client.sendall(raw_request(target, b"", f"Host: {host}", "Connection: close", method="GET"))
        assert status(received(client)) == expected


def test_connections_are_counted(tmp_path: Path) -> None:
    with waiting_server(tmp_path, connections=3) as served:
        clients = [connect(served.port) for _ in range(3)]
        try:
            for client in clients:
                client.sendall(raw_request("/livez", method="GET"))
                assert status(received(client, until=b'"ok"}')) == 200
            with connect(served.port) as one_more:
                assert closed_within(one_more)  # not for its header lines, which have two minutes
        finally:
            for client in clients:
                client.close()
        assert status(eventually_answered(served)) == 200


def eventually_answered(served: Running) -> bytes:
    for _ in range(400):
        if answer := asked(served, raw_request("/livez", method="GET")):
            return answer
        time.sleep(0.05)
    return b""


def test_who_does_not_read_is_dropped(hasty: Running) -> None:
    body = {"model": "tiny", "prompt": "x", "tokens": 150_000, "stream": "sse", "pad": 50_000}
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.settimeout(30)
    client.connect(("127.0.0.1", hasty.port))
    with client:
        client.sendall(raw_request("/test/answer", json.dumps(body).encode()))
        client.recv(100)
        began = time.monotonic()
        while hasty.serving.state.underway and time.monotonic() - began < 100:
            time.sleep(0.05)
        assert not hasty.serving.state.underway


@pytest.mark.parametrize(
    ("sent", "said", "expected"),
    [
        (b"NONSENSE\r\n\r\n", "it is not HTTP: illegal request line", 400),
        (b"GET / HTTP/1.1\r\nX-Api-Key s3cret\r\n\r\n", "it is not HTTP: illegal header line", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", "Only Transfer-Encoding: chunked", 501),
        (b"\x16\x03\x01\x02\x00\x01\x00", "it is TLS (https://)", 400),
        (
            b"POST /test/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
            "chunk",
            400,
        ),
    ],
)
def test_what_is_not_http_is_told_to_client_and_log(
    served: Running, sent: bytes, said: str, expected: int
) -> None:
    stream: Any = served.serving.log._stream
    before = stream.getvalue()
    with connect(served.port) as client:
        client.sendall(sent)
        answer = received(client)
    assert status(answer) == expected
    assert said in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    line = next(one for one in stream.getvalue().removeprefix(before).splitlines() if " connection " in one)
    assert "client=127.0.0.1" in line
    assert said in line
    assert "s3cret" not in f"{answer}{line}"


def test_what_is_no_http_behind_an_answer_ends_the_connection(
    served: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """And is not an error of ours."""
    with connect(served.port) as client:
        client.sendall(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert status(received(client, until=b"}")) == 404
        client.sendall(b"zzz\r\n")
        assert closed_within(client)
    assert not [one for one in caplog.records if one.exc_info]


def test_fields_say_their_name(served: Running) -> None:
    for body, where in (
        ({"prompt": "x"}, "model"),
        ({"model": 5, "prompt": "x"}, "model"),
        ({"model": "tiny", "prompt": "x", "rows": 9}, "rows"),
        ({"model": "tiny", "prompt": "x", "tokens": "many"}, "tokens"),
        ({"model": "tiny", "prompt": "x", "rows": True}, "rows"),
        ({"model": "tiny", "prompt": "x", "stream": "xml"}, "stream"),
    ):
        with connect(served.port) as client:
            client.sendall(raw_request("/test/answer", json.dumps(body).encode(), "Connection: close"))
            head, _, said = received(client).partition(b"\r\n\r\n")
        problem: Any = json.loads(said)
        assert (status(head), problem["param"], problem["fault"]) == (400, where, "invalid_request"), body
        assert where in problem["said"]


def test_who_asks_for_another_protocol_gets_an_answer_and_fills_no_log(tmp_path: Path) -> None:
    written = io.StringIO()
    settings = Settings.from_environment({"MODELKIT_HOME": str(tmp_path)})
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    with running(Serving(Pool(no_model), settings, PATIENT, log=Log(written))) as here:
        assert status(asked(here, raw_request("/test/echo", b"{}", *upgrade))) == 200
    assert "WebSocket" not in written.getvalue()
