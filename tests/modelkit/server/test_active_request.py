"""A request on a model: streamed, whole, in several rows; and left, in the queue, in prefill, in decoding."""

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import modelkit
from modelkit.model import Model
from modelkit.server.limits import Limits
from modelkit.server.log import Log
from modelkit.server.models.pool import Pool
from modelkit.server.serving import LONG_BODY_BYTES, WORKERS, Serving
from modelkit.settings import Settings
from modelkit.tokenizer.long_texts import PIECE_CHARS
from tests.support.live_server import Running, connect, raw_request, received, running
from tests.support.served import Quiet
from tests.support.tiny import TEMPLATE, write_model

LIMITS = Limits(heartbeat_s=0.15, grace_s=0.5)


class Brake:
    """Holds the engine's thread up."""

    def __init__(self, model: Model) -> None:
        self.engine: Any = model._running.engine  # type: ignore[union-attr]
        self.steps, self.slow_s = 0, 0.0
        self.go = threading.Event()
        self.go.set()
        self._run = self.engine._loop._steps.run
        self.engine._loop._steps.run = self._counted

    def _counted(self, prefill: int) -> Any:
        self.steps += 1
        time.sleep(self.slow_s)
        self.go.wait(100)
        return self._run(prefill)

    @property
    def rows(self) -> int:
        """Those that run or wait."""
        return len(self.engine._loop._places.rows) + len(self.engine._loop._waiting)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = write_model(tmp_path_factory.mktemp("model"), max_position_embeddings=60_000)
    with modelkit.load(folder, home=tmp_path_factory.mktemp("home"), num_batch=16) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def brake(model: Model) -> Brake:
    return Brake(model)


@pytest.fixture(scope="module")
def served(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings = Settings.from_environment({"MODELKIT_HOME": str(tmp_path_factory.mktemp("home"))})
    with running(Serving(Pool(lambda _: model), settings, LIMITS, log=Log(io.StringIO()))) as here:
        yield here


def post(served: Running, **body: Any) -> httpx.Response:
    return httpx.post(
        f"{served.url}/test/answer", json={"model": "tiny", "prompt": "Hello", **body}, timeout=60
    )


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    return [
        json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line[:1] in ("d", "{")
    ]


def until(true: Callable[[], object], limit_s: float = 100) -> bool:
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > limit_s:
            return False
        time.sleep(0.005)
    return True


@pytest.mark.parametrize("wire", ["sse", "ndjson"])
def test_a_stream_has_what_the_whole_answer_has(served: Running, wire: str) -> None:
    whole = post(served, tokens=24).json()["texts"]
    streamed = post(served, tokens=24, stream=wire)
    found = events(streamed)
    assert [list(found[0]), found[-1]] == [["begin"], {"over": True}]
    assert ["".join(one.get("text", "") for one in found)] == whole
    assert streamed.headers["content-type"].startswith(
        "text/event-stream" if wire == "sse" else "application/x-ndjson"
    )
    assert streamed.headers["cache-control"] == "no-cache"


def test_rows_run_side_by_side(served: Running, brake: Brake) -> None:
    before = brake.steps
    found = events(post(served, tokens=40, rows=4, stream="sse"))
    assert brake.steps - before < 4 * 40  # one step, one token for each
    texts = ["".join(one.get("text", "") for one in found if one.get("row") == row) for row in range(4)]
    assert texts == post(served, tokens=40, rows=4).json()["texts"]
    assert sum(one.get("end", False) for one in found) == 4


def test_an_error_before_the_first_byte_has_a_status(served: Running) -> None:
    # Of lines: events begin with a sign of life where a busy machine takes long to find the error.
    answer = post(served, prompt="x" * 60_000, stream="ndjson")
    assert (answer.status_code, answer.json()["fault"]) == (400, "too_long")


def test_signs_of_life(served: Running, brake: Brake) -> None:
    """In the queue and while a prompt is read; for events alone."""
    gate = threading.Event()
    brake.engine._thread.post(gate.wait, lambda error: None)
    began = time.monotonic()
    beats = beating(served, "Hello", gate)
    assert beats <= (time.monotonic() - began) / LIMITS.heartbeat_s
    brake.go.clear()
    assert beating(served, "abcd" * 100, brake.go) >= 2
    brake.slow_s = 0.02
    try:
        assert "heartbeat" not in post(served, prompt="efgh" * 60, tokens=1, stream="ndjson").text
    finally:
        brake.slow_s = 0.0


def beating(served: Running, prompt: str, go: threading.Event) -> int:
    """Signs of life until the answer has ended, which may go on once there are two."""
    said, body = "", {"model": "tiny", "prompt": prompt, "tokens": 1, "stream": "sse"}
    try:
        with httpx.stream("POST", f"{served.url}/test/answer", json=body, timeout=60) as answer:
            for text in answer.iter_text():
                said += text
                if said.count(": heartbeat\n\n") >= 2:
                    go.set()
    finally:
        go.set()
    assert said.endswith('data: {"over":true}\n\n')
    return said.count(": heartbeat")


@pytest.mark.parametrize("stream", [None, "sse", "ndjson"])
@pytest.mark.parametrize("stage", ["queue", "prefill", "decode"])
def test_who_leaves_cancels(served: Running, brake: Brake, stage: str, stream: str | None) -> None:
    prompt = f"{stage} {stream} " * (150 if stage == "prefill" else 1)
    body = {"model": "tiny", "prompt": prompt, "tokens": 20_000, "stream": stream}
    gate = threading.Event()
    if stage == "queue":
        brake.engine._thread.post(lambda: gate.wait(200), lambda error: None)
    brake.slow_s = 0.1 if stage == "prefill" else 0.0
    before = brake.steps
    try:
        with connect(served.port) as client:
            client.sendall(raw_request("/test/answer", json.dumps(body).encode()))
            if stage == "queue":
                assert until(lambda: served.serving.state.underway)
                time.sleep(0.05)
            else:
                assert until(lambda: brake.steps > before + (3 if stage == "prefill" else 120))
        if stage == "queue":
            time.sleep(0.1)
            gate.set()
        left = brake.steps
        assert until(lambda: not served.serving.state.underway), "the request goes on"
        assert until(lambda: brake.rows == 0)
        assert brake.steps - left < (100 if stage == "prefill" else 15_000)  # of 150 to be read, or 20,000
    finally:
        gate.set()
        brake.slow_s = 0.0
    assert post(served).status_code == 200


def test_a_connection_can_be_used_again(served: Running) -> None:
    with httpx.Client(base_url=served.url) as client:
        for _ in range(3):
            body = {"model": "tiny", "prompt": "Hello", "stream": "sse"}
            assert '"over":true' in client.post("/test/answer", json=body).text


def test_a_hundred_leave_nothing_behind(served: Running, brake: Brake) -> None:
    threads = threading.active_count()
    body = json.dumps({"model": "tiny", "prompt": "Hello", "tokens": 20_000, "stream": "sse"}).encode()
    for _ in range(4):
        clients = [connect(served.port) for _ in range(25)]
        for client in clients:
            client.sendall(raw_request("/test/answer", body))
        for client in clients[::2]:
            client.recv(10)
        for client in clients:
            client.close()
    assert until(lambda: not served.serving.state.underway and brake.rows == 0)
    assert brake.engine._queue.count == 0
    assert threading.active_count() <= threads + 20  # workers, and not one for each of a hundred
    assert post(served).status_code == 200


def test_what_was_asked_is_counted(served: Running) -> None:
    before = counted(served)
    post(served, tokens=5, rows=2)
    after = counted(served)
    name = "modelkit_generated_tokens_total"
    assert sum(after[key] - before.get(key, 0) for key in after if key.startswith(name)) == 10
    assert any(key.startswith('modelkit_answers_total{model="') and 'finish="length"' in key for key in after)
    assert any(key.startswith("modelkit_inter_token_seconds_bucket") for key in after)


def counted(served: Running) -> dict[str, float]:
    text = httpx.get(f"{served.url}/metrics").text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_a_stuck_engine_is_no_health(served: Running, brake: Brake) -> None:
    gate = threading.Event()
    object.__setattr__(served.serving.limits, "stalled_s", 0.1)
    brake.engine._thread.post(lambda: gate.wait(100), lambda error: None)
    try:
        assert until(lambda: httpx.get(f"{served.url}/health").status_code == 503)
        assert httpx.get(f"{served.url}/health").json() == {"status": "stalled"}
        steps = [
            value for name, value in counted(served).items() if name.startswith("modelkit_engine_step_s")
        ]
        assert max(steps) > 0.1
        assert httpx.get(f"{served.url}/livez").status_code == 200
    finally:
        gate.set()
        object.__setattr__(served.serving.limits, "stalled_s", 120.0)
    assert until(lambda: httpx.get(f"{served.url}/health").status_code == 200)


@pytest.mark.parametrize(("takes_s", "grace_s", "status"), [(1.0, 20.0, 200), (20.0, 0.3, 503)])
def test_what_is_no_answer_may_end_too(
    takes_s: float, grace_s: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is told where it does not."""
    monkeypatch.setattr("modelkit.server.http.listening._LAST_BYTES_S", 0.5)
    settings = Settings.from_environment({"MODELKIT_HOME": str(tmp_path)})
    began, ended = threading.Event(), threading.Event()
    with modelkit.load(write_model(tmp_path / "model"), home=tmp_path) as slow:
        embed = slow.embed

        def late(*given: Any, **options: Any) -> Any:
            began.set()
            ended.wait(takes_s)
            return embed(*given, **options)

        slow.__dict__["embed"] = late
        serving = Serving(Pool(lambda _: slow), settings, replace(LIMITS, grace_s=grace_s), log=Quiet())
        with running(serving) as here, ThreadPoolExecutor(1) as other:
            body = {"model": "tiny", "input": "Once"}
            answer = other.submit(httpx.post, f"{here.url}/v1/embeddings", json=body, timeout=60)
            assert began.wait(60)
            here.stop()
            assert answer.result(60).status_code == status
            assert not serving.state.jobs
            ended.set()


EMBEDDED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/embeddings", {"input": "Once"}),
    ("/api/embed", {"input": "Once"}),
    ("/api/embeddings", {"prompt": "Once"}),
]
SCORED = [("/v1/completions", {"prompt": "Once", "echo": True, "logprobs": 1, "max_tokens": 1})]


@pytest.mark.parametrize("given", [EMBEDDED, SCORED], ids=["embedded", "scored"])
def test_answers_begin_while_many_texts_are_read(
    tmp_path: Path, given: list[tuple[str, dict[str, Any]]]
) -> None:
    settings = Settings.from_environment({"MODELKIT_HOME": str(tmp_path)})
    began, go = threading.Semaphore(0), threading.Event()
    with modelkit.load(write_model(tmp_path / "model"), home=tmp_path) as slow:

        def late(act: Callable[..., Any]) -> Callable[..., Any]:
            def acted(*given: Any, **options: Any) -> Any:
                began.release()
                go.wait(100)
                return act(*given, **options)

            return acted

        slow.__dict__.update(embed=late(slow.embed), logits=late(slow.logits))
        serving = Serving(Pool(lambda _: slow), settings, LIMITS, log=Quiet())
        with running(serving) as here, ThreadPoolExecutor(WORKERS) as others:
            sent = [
                others.submit(httpx.post, here.url + path, json={"model": "tiny", **body}, timeout=60)
                for path, body in (given * WORKERS)[:WORKERS]
            ]
            try:
                assert all(began.acquire(timeout=60) for _ in sent)
                assert post(here).status_code == 200
            finally:
                go.set()
            assert {one.result(60).status_code for one in sent} == {200}


def test_answers_begin_while_long_prompts_become_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whoever leaves is not worked for any more, though a text has only begun."""
    settings = Settings.from_environment({"MODELKIT_HOME": str(tmp_path)})
    began, go, ended = threading.Semaphore(0), threading.Event(), list[int]()
    with modelkit.load(write_model(tmp_path / "model", template=TEMPLATE), home=tmp_path) as model:
        tokenizer: Any = model._running.tokenizer  # type: ignore[union-attr]
        encode = tokenizer.encode

        def late(text: str, *, add_special: bool) -> list[int]:
            if len(text) < PIECE_CHARS:
                return encode(text, add_special=add_special)
            began.release()
            go.wait(100)
            ended.append(len(text))
            return encode(text[:9], add_special=add_special)

        monkeypatch.setattr(tokenizer, "encode", late)
        serving = Serving(Pool(lambda _: model), settings, LIMITS, log=Quiet())
        body = {"model": "tiny", "messages": [{"role": "user", "content": "a" * LONG_BODY_BYTES}]}
        asked = raw_request("/v1/chat/completions", json.dumps(body).encode())
        with running(serving) as here:
            clients = [connect(here.port) for _ in range(WORKERS)]
            for client in clients:
                client.sendall(asked)
            assert all(began.acquire(timeout=60) for _ in range(2))
            assert post(here).status_code == 200
            for client in clients:
                client.close()
            assert until(lambda: not serving.state.underway)
            go.set()
            assert until(lambda: len(ended) == 2)
            assert post(here).status_code == 200
            assert not began.acquire(timeout=0.1)


def test_who_reads_slowly_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Their answers are made; what waits is to be sent."""
    settings = Settings.from_environment({"MODELKIT_HOME": str(tmp_path)})
    with modelkit.load(write_model(tmp_path / "model"), home=tmp_path, num_parallel=1) as model:
        serving = Serving(Pool(lambda _: model), settings, LIMITS, log=Quiet())
        body = {"model": "tiny", "prompt": "x", "tokens": 30, "stream": "sse", "pad": 10**6, "rows": 8}
        with running(serving) as here, ExitStack() as clients:
            for _ in range(6):  # one more than may have a turn
                client = clients.enter_context(connect(here.port))
                client.sendall(raw_request("/test/answer", json.dumps(body).encode()))
            assert post(here).status_code == 200
            assert len(serving.state.underway) == 6


def test_draining(
    model: Model, brake: Brake, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs may end; what does not end is told; what comes is sent away, and what was just coming."""
    settings = Settings.from_environment({"MODELKIT_HOME": str(tmp_path_factory.mktemp("home"))})
    limits = replace(LIMITS, grace_s=4.0, body_s=60.0)  # three requests come meanwhile, to a busy machine
    with running(Serving(Pool(lambda _: model), settings, limits, log=Log(io.StringIO()))) as here:
        body = json.dumps({"model": "tiny", "prompt": "x", "tokens": 50_000, "stream": "sse"}).encode()
        with connect(here.port) as client, connect(here.port) as coming:
            coming.sendall(raw_request("/test/answer", body)[:-1])
            client.sendall(raw_request("/test/answer", body))
            received(client, until=b"row")
            monkeypatch.setattr(brake, "slow_s", 0.05)  # others need the processor while it has its time
            here.stop()
            assert received(coming, until=b"\r\n\r\n").startswith(b"HTTP/1.1 503 ")
            assert until(lambda: httpx.get(f"{here.url}/health").status_code == 503)
            assert httpx.get(f"{here.url}/health").json() == {"status": "draining"}
            late = post(here)
            assert (late.status_code, late.headers["retry-after"]) == (503, "5")
            assert b'"kind":"draining"' in received(client)
