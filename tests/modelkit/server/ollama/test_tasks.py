"""Pulls and creates, which take minutes: their lines of progress, their end, and how many run at once."""

import io
import json
import threading
import time
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import httpx
import ollama
import pytest

from modelkit.server.limits import Limits
from modelkit.server.log import Log
from modelkit.server.models.model_source import StoredModels
from modelkit.server.models.pool import Pool
from modelkit.server.ollama import tasks
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.live_server import connect, raw_request, running
from tests.support.served import Quiet


def test_a_pull_tells_how_far_it_is(
    address: str, monkeypatch: pytest.MonkeyPatch, client: ollama.Client
) -> None:
    from modelkit.pack import pulling

    asked: list[tuple[str, str | None]] = []

    def pull(found: Any, store: Any, access: Any, name: Any) -> None:
        asked.append((str(found), name and name.short))
        access.listener.say("8 B of 8 B to fetch")
        access.listener.begin("fetch story", 8)
        access.listener.advance(8)
        access.listener.finish()

    monkeypatch.setattr(pulling, "pull", pull)
    lines = list(client.pull("story", stream=True))
    assert lines[0].status == "8 B of 8 B to fetch"
    assert (lines[-2].completed, lines[-2].total) == (8, 8)
    assert str(lines[-2].digest).startswith("sha256:")
    assert lines[-1].status == "success"
    for name in ("hf.co/Org/Name:Q4_K_M", "registry.example.org/amy/story:q4", "ollama.com/amy/x", "amy/x"):
        assert client.pull(name).status == "success"
    assert asked == [  # what is asked for afterwards is what was pulled
        ("ollama.com/library/story", "story:latest"),
        ("hf.co/Org/Name:Q4_K_M", "hf.co/org/name:q4_k_m"),
        ("oci://registry.example.org/amy/story:q4", "registry.example.org/amy/story:q4"),
        ("ollama.com/amy/x", "amy/x:latest"),
        ("ollama.com/amy/x", "amy/x:latest"),
    ]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_full_disk_is_told_to_the_client_and_in_the_log(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    """Before the first line by the status; and nothing is told to be tried again at once."""
    from modelkit.store.layout import Layout

    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    log = io.StringIO()
    with running(Serving(Pool(StoredModels(Settings(home))), Settings(home), log=Log(log))) as here:
        monkeypatch.setattr(Layout, "prepare", full)
        asked = {"model": "new", "from": "amy/story:q4", "stream": streamed}
        answer = httpx.post(f"{here.url}/api/create", json=asked)
    assert answer.status_code == 507, answer.text
    assert answer.headers["x-should-retry"] == "false"
    assert "no space left on device" in answer.json()["error"]
    assert "error=disk_full" in log.getvalue()
    assert "no space left on device" in log.getvalue()
    assert "Traceback" not in log.getvalue()


def test_a_client_that_leaves_stops_the_work(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from modelkit.pack import pulling

    began, ended = threading.Event(), threading.Event()

    def pull(found: Any, store: Any, access: Any, name: Any) -> None:
        try:
            access.listener.begin("fetch story", 10**9)
            began.set()
            while True:
                access.listener.advance(1)
                time.sleep(0.005)
        finally:
            ended.set()

    monkeypatch.setattr(pulling, "pull", pull)
    for stream in (True, False):
        began.clear()
        ended.clear()
        body = json.dumps({"model": "s", "stream": stream}).encode()
        with connect(urlsplit(address).port or 0) as client:
            client.sendall(raw_request("/api/pull", body))
            assert began.wait(60)
        assert ended.wait(60)


def test_a_server_that_ends_stops_the_work(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from modelkit.pack import pulling

    half = tmp_path / "half"

    def pull(found: Any, store: Any, access: Any, name: Any) -> None:
        half.touch()
        try:
            access.listener.begin("fetch story", 10**9)
            while True:
                access.listener.advance(1)
                time.sleep(0.005)
        finally:
            time.sleep(0.2)  # as tidying up may take
            half.unlink()

    monkeypatch.setattr(pulling, "pull", pull)
    serving = Serving(Pool(StoredModels(Settings(home))), Settings(home), Limits(grace_s=0.1), log=Quiet())
    with (
        running(serving) as here,
        httpx.stream("POST", f"{here.url}/api/pull", json={"model": "s"}) as answer,
    ):
        lines = answer.iter_lines()
        assert "completed" in next(lines)
        here.stop()
        assert "the server was stopped" in json.loads([*lines][-1])["error"]
    assert not half.exists()
    assert not serving.state.jobs


def test_only_some_works_run_at_once(address: str) -> None:
    held = [tasks._running.acquire(timeout=20) for _ in range(tasks.MOST_AT_ONCE)]  # pyright: ignore
    try:
        answer = httpx.post(f"{address}/api/pull", json={"model": "story"})
    finally:
        for _ in filter(None, held):
            tasks._running.release()  # pyright: ignore
    assert answer.status_code == 503


def test_an_error_in_the_middle_is_a_line(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from modelkit.errors import FetchError
    from modelkit.pack import pulling

    def pull(found: Any, store: Any, access: Any, name: Any) -> None:
        access.listener.say("going")
        raise FetchError("the line is cut")

    monkeypatch.setattr(pulling, "pull", pull)
    answer = httpx.post(f"{address}/api/pull", json={"model": "story"})
    assert [json.loads(one) for one in answer.text.splitlines()] == [
        {"status": "going"},
        {"error": "the line is cut"},
    ]
