"""`POST /modelkit/v1/chat`: each event of an answer is a line, with what it cost at the end."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

import modelkit
from modelkit.answers.generation import Finish, Generation
from modelkit.errors import ModelNotFound
from modelkit.model import Model
from modelkit.modelfile import Parameters
from modelkit.output.events import CallArguments, CallEnd, CallStart, Text, Thinking
from modelkit.server.app import make_app
from modelkit.server.faults import Fault
from modelkit.server.models.pool import Pool
from modelkit.server.own import chat
from modelkit.server.own.lines import Lines, line
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from runtime.engine.request import TokenLogprob, Usage
from tests.support.served import Quiet
from tests.support.tiny import TEMPLATE, write_model

PAUSES: list[float] = []
"""Seconds that the engine's next steps take longer."""
HELLO = {"role": "user", "content": "Hello"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    home = tmp_path_factory.mktemp("home")
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE)

    def opened(name: str) -> Model:
        if name != "tiny":
            raise ModelNotFound(f"there is no model {name!r}")
        return modelkit.load(folder, home=home)

    def slowed(name: str) -> Model:
        model = opened(name)
        steps: Any = model._running.engine._loop._steps  # type: ignore[union-attr]
        run = steps.run

        def slow(prefill: int) -> Any:
            time.sleep(PAUSES.pop() if PAUSES else 0)
            return run(prefill)

        steps.run = slow
        return model

    pool = Pool(slowed)
    serving = Serving(pool, Settings.from_environment({"MODELKIT_HOME": str(home)}), log=Quiet())
    with TestClient(make_app(serving), base_url="http://localhost") as client:
        yield client
    asyncio.run(pool.close())


def ask(client: TestClient, **body: Any) -> list[dict[str, Any]]:
    answer = client.post("/modelkit/v1/chat", json={"model": "tiny", "messages": [HELLO], **body})
    assert answer.status_code == 200, answer.text
    return [json.loads(text) for text in answer.text.splitlines() if text]


def test_an_answer_is_a_line_for_each_event(client: TestClient) -> None:
    lines = ask(client, parameters={"num_predict": 12, "seed": 1}, top_logprobs=2)
    # A busy machine may take so long to load the model that this is told.
    start, *events, finish = [one for one in lines if one["type"] != "progress"]
    assert start["type"] == "start"
    assert start["context_tokens"] == 256
    tokens = [token for event in events for token in event.get("tokens", [])]
    assert len(tokens) == finish["stats"]["generated_tokens"] <= 12
    assert all(len(token["top"]) == 2 and token["logprob"] <= 0 for token in tokens)
    assert {"reason", "cut", "seed", "stats", "dropped_messages"} <= finish.keys()
    assert finish["stats"]["prompt_tokens"] > 0


def test_the_same_question_again_is_reused(client: TestClient) -> None:
    messages = [{"role": "user", "content": "a" * 100}]
    ask(client, messages=messages, parameters={"num_predict": 4})
    assert ask(client, messages=messages, parameters={"num_predict": 4})[-1]["stats"]["cached_tokens"] > 50


def test_a_long_wait_is_told(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "LINES", replace(chat.LINES, beat_s=0.02))
    PAUSES.append(1.0)
    lines = ask(client, messages=[{"role": "user", "content": "b" * 90}], parameters={"num_predict": 2})
    told = [one for one in lines if one["type"] == "progress"]
    assert told
    assert {one["total_tokens"] for one in told} == {lines[-1]["stats"]["prompt_tokens"]}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"colour": "red"}, 400, "colour"),
        ({"parameters": {"temprature": 1}}, 400, "parameters.temprature"),
        ({"parameters": {"top_p": 7}}, 400, "top_p"),
        ({"messages": [{"role": "user", "content": "x", "audio": "y"}]}, 400, "messages"),
        ({"model": "none"}, 404, "none"),
        ({"format": {"type": "colour"}}, 400, "colour"),
    ],
)
def test_what_is_refused_says_what_and_where(
    client: TestClient, body: dict[str, Any], status: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may take longer than until the first sign of life, which has a status of its own.
    monkeypatch.setattr(chat, "LINES", replace(chat.LINES, beat_s=60.0))
    answer = client.post("/modelkit/v1/chat", json={"model": "tiny", "messages": [HELLO], **body})
    assert answer.status_code == status
    assert said in answer.json()["error"]


def test_every_kind_of_event_has_its_line() -> None:
    events = [
        Thinking("hm", (1,), (TokenLogprob(1, -0.5, ((2, -1.0),)),)),
        Text("so"),
        CallStart(0, "call_1", "find"),
        CallArguments(0, '{"a":'),
        CallEnd(0),
        Finish(Generation("so", (1,), Usage(prompt_tokens=3), "length", 7, cut="context")),
    ]
    lines = [line(event, lambda token: f"<{token}>") for event in events]
    assert [one["type"] for one in lines] == [
        *("thinking", "text", "call_start", "call_arguments", "call_end", "finish"),
    ]
    assert lines[0]["tokens"] == [
        {"id": 1, "text": "<1>", "logprob": -0.5, "top": [{"id": 2, "text": "<2>", "logprob": -1.0}]}
    ]
    assert lines[2] == {"type": "call_start", "index": 0, "id": "call_1", "name": "find"}
    assert (lines[5]["cut"], lines[5]["stats"]["prompt_tokens"]) == ("context", 3)


def test_a_number_beyond_all_stays_in_the_text() -> None:
    """JSON has no infinities: a browser could not read the line."""
    ended = Generation("[1e999]", (1,), Usage(), "stop", 7, parsed=[float("inf")])
    assert "parsed" not in line(Finish(ended), str)


def test_an_error_in_mid_stream_says_which_request_it_was() -> None:
    said = json.loads(Lines("req_7").fail(Fault("busy", "too many", retry_after_s=3)))["error"]
    assert said == {"kind": "busy", "message": "too many", "retry_after_s": 3, "request_id": "req_7"}


def test_the_values_that_nobody_set_are_told(client: TestClient) -> None:
    told = client.get("/modelkit/v1/defaults").json()
    assert told["temperature"] == Parameters().resolved().temperature
    assert "num_ctx" not in told  # settled when a model is loaded
