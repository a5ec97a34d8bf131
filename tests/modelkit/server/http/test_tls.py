"""HTTPS from the handshake to the last byte of an answer, with a certificate of our own."""

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import openai
import pytest

import modelkit
from modelkit.client.connection import Connection, Unreachable
from modelkit.errors import ModelkitError
from modelkit.server.http.place import Place
from tests.support.running_server import Running, running
from tests.support.tiny import TEMPLATE, write_model

TLS = Path(__file__).parents[3] / "data" / "tls"
ASK = {"model": "story", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("home")
    write_model(home / "model", template=TEMPLATE)
    (home / "Modelfile").write_text(f"FROM {home / 'model'}\n")
    modelkit.create(home / "Modelfile", name="story", home=home)
    place = Place(port=0, certificate=str(TLS / "certificate.pem"), key=str(TLS / "key.pem"))
    with running(home, place) as server:
        yield server


@pytest.fixture(scope="module")
def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=TLS / "certificate.pem")


def test_an_answer_over_https_is_whole(server: Running, trusting: ssl.SSLContext) -> None:
    assert server.address.startswith("https://127.0.0.1:")
    with httpx.Client(base_url=server.address, verify=trusting) as client:
        assert client.get("/health").json() == {"status": "ok"}
        whole = client.post("/v1/chat/completions", json={**ASK, "seed": 1}).json()
        text = client.post("/v1/chat/completions", json={**ASK, "seed": 1, "stream": True}).text
        events = [json.loads(one[6:]) for one in text.split("\n\n")[:-2]]
        assert text.endswith("data: [DONE]\n\n")
        said = "".join(one["choices"][0]["delta"].get("content") or "" for one in events)
        assert said == whole["choices"][0]["message"]["content"]
        origin = {"origin": server.address}
        assert client.post("/v1/chat/completions", json=ASK, headers=origin).status_code == 200
        plain = {"origin": server.address.replace("https", "http")}
        assert client.post("/v1/chat/completions", json=ASK, headers=plain).status_code == 403
    here = httpx.Client(verify=trusting)
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="x", http_client=here) as official:
        (model,) = official.models.list().data
        assert model.id.startswith("story")


def test_a_key_that_a_password_opens(tmp_path: Path, trusting: ssl.SSLContext) -> None:
    place = Place(
        port=0,
        certificate=str(TLS / "certificate.pem"),
        key=str(TLS / "encrypted.pem"),
        password="a word ",
    )
    with running(tmp_path, place) as server:
        assert httpx.get(f"{server.address}/livez", verify=trusting).json() == {"status": "ok"}


def test_only_modern_tls_is_spoken(server: Running, trusting: ssl.SSLContext) -> None:
    port = int(server.address.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        assert secured.version() in ("TLSv1.2", "TLSv1.3")
    with pytest.raises(httpx.TransportError):
        httpx.get(server.address.replace("https", "http") + "/health")


def test_who_does_not_know_the_certificate_is_told_that_it_is_that(server: Running) -> None:
    with Connection(server.address) as asked, pytest.raises(Unreachable, match="certificate") as raised:
        asked.get("/health")
    assert "SSL_CERT_FILE" in (raised.value.hint or "")


def test_our_own_client_speaks_https(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "certificate.pem"))
    with Connection(server.address) as asked:
        assert asked.get("/modelkit/v1/find", model="story")["name"] == "story:latest"


def test_what_is_asked_by_another_name_or_without_tls_hears_how(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "certificate.pem"))
    other = server.address.replace("127.0.0.1", "127.0.0.2")
    monkeypatch.setattr(socket, "create_connection", _to_loopback(socket.create_connection))
    with Connection(other) as asked, pytest.raises(Unreachable, match="MODELKIT_HOST=https://HOST:PORT asks"):
        asked.get("/health")
    plain = server.address.replace("https:", "http:")
    with Connection(plain) as asked, pytest.raises(ModelkitError, match="One that has a certificate"):
        asked.get("/health")


def _to_loopback(connect: Callable[..., socket.socket]) -> Callable[..., socket.socket]:
    """127.0.0.2, which not every system answers at."""
    return lambda address, *rest, **more: connect(("127.0.0.1", address[1]), *rest, **more)
