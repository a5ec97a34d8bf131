"""Pieces of an answer go to the connection without messages of ASGI, where they can."""

import asyncio
import io
import json
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import h11
import httpx
import pytest
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

import modelkit
from modelkit.server.http.protocol import Chunks
from modelkit.server.log import Log
from modelkit.server.models.pool import Pool
from modelkit.server.rows import Batch, Rows
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.live_server import Running, connect, received, running
from tests.support.tiny import write_model

TOKENS = 30
BODY = {"model": "tiny", "prompt": "Hello", "max_tokens": TOKENS, "stream": True, "temperature": 0}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder, home = write_model(tmp_path_factory.mktemp("model")), tmp_path_factory.mktemp("home")
    settings = Settings.from_environment({"MODELKIT_HOME": str(home)})
    with (
        modelkit.load(folder, home=home) as model,
        running(Serving(Pool(lambda _: model), settings, log=Log(io.StringIO()))) as here,
    ):
        yield here


def cycle(**changed: Any) -> Any:
    written: list[bytes] = []
    made = {
        "flow": SimpleNamespace(write_paused=False),
        "disconnected": False,
        "conn": SimpleNamespace(our_state=h11.SEND_BODY),
        "transport": SimpleNamespace(write=written.append),
        "written": written,
    }
    return SimpleNamespace(**{**made, **changed})


def test_a_piece_is_one_chunk() -> None:
    here = cycle()
    assert Chunks(here)(b"x" * 17)
    assert here.written == [b"11\r\n" + b"x" * 17 + b"\r\n"]


@pytest.mark.parametrize(
    "changed",
    [
        {"flow": SimpleNamespace(write_paused=True)},
        {"disconnected": True},
        {"conn": SimpleNamespace(our_state=h11.SEND_RESPONSE)},
        {"conn": SimpleNamespace(our_state=h11.DONE)},
    ],
)
def test_what_cannot_be_a_chunk_now_is_left_to_a_message(changed: dict[str, Any]) -> None:
    here = cycle(**changed)
    assert not Chunks(here)(b"x")
    assert here.written == []


def test_pieces_of_a_stream_are_no_messages(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[Any] = []
    send = RequestResponseCycle.send

    async def counted(self: RequestResponseCycle, message: Any) -> None:
        messages.append(message)
        await send(self, message)

    monkeypatch.setattr(RequestResponseCycle, "send", counted)
    answer = httpx.post(f"{served.url}/v1/completions", json=BODY, timeout=30)
    pieces = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: {")]
    assert len(pieces) > 2
    assert [one["type"] for one in messages] == ["http.response.start", "http.response.body"]


def test_a_client_of_an_older_http_gets_a_body_without_chunks(served: Running) -> None:
    data = json.dumps(BODY).encode()
    head = f"POST /v1/completions HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n"
    with connect(served.port) as client:
        client.sendall(head.encode() + data)
        answer = received(client)
    header, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in header.lower()
    assert body.startswith(b"data: {")
    assert body.endswith(b"data: [DONE]\n\n")
    assert all(line.startswith(b"data: ") for line in body.strip().split(b"\n\n"))


def test_rows_of_one_request_share_a_write(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """What all of them have brought when the loop looks is one."""
    writes: list[bytes] = []
    chunk, take = Chunks.__call__, Rows.take

    def late(self: Rows) -> list[Batch]:
        while not all(one.source.has_news for one in self._left.values()):
            time.sleep(0.001)  # whoever of the two threads is quicker
        return take(self)

    monkeypatch.setattr(Rows, "take", late)
    monkeypatch.setattr(Chunks, "__call__", lambda self, data: writes.append(data) or chunk(self, data))
    httpx.post(f"{served.url}/v1/completions", json={**BODY, "n": 4}, timeout=30)
    assert any(
        b'"index":0' in one and b'"index":1' in one and b'"index":2' in one and b'"index":3' in one
        for one in writes
    )


def test_who_reads_too_slowly_gets_a_message_and_nothing_beside_it(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second write finds the connection full, and a message waits for the client."""
    order: list[str] = []
    chunk, send = Chunks.__call__, RequestResponseCycle.send

    def second(self: Chunks, data: bytes) -> bool:
        order.append("write")
        return len(order) % 2 == 1 and chunk(self, data)

    async def late(self: RequestResponseCycle, message: Any) -> None:
        order.append("message")
        await asyncio.sleep(0.05)
        await send(self, message)
        order.append("sent")

    monkeypatch.setattr(Chunks, "__call__", second)
    monkeypatch.setattr(RequestResponseCycle, "send", late)
    body = {**BODY, "max_tokens": 300, "n": 2}
    answer = httpx.post(f"{served.url}/v1/completions", json=body, timeout=60)
    texts = ["", ""]
    for line in re.findall(r"^data: ({.*)$", answer.text, re.MULTILINE):
        for choice in json.loads(line)["choices"]:
            texts[choice["index"]] += choice["text"]
    assert order.count("message") >= 3  # the beginning, the end, and one at least of the pieces
    assert all(here != "message" or there == "sent" for here, there in pairwise(order))
    monkeypatch.undo()
    whole = httpx.post(f"{served.url}/v1/completions", json={**body, "stream": False}, timeout=60).json()
    assert texts == [one["text"] for one in whole["choices"]]
