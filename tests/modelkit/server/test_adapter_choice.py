"""Adapters that clients choose with the model's name, in every dialect."""

import io
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import modelkit
from modelkit.server.app import make_app
from modelkit.server.log import Log
from modelkit.server.models.model_source import StoredModels
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.adapter_references import AdapterReference
from tests.support.checkpoints import write_checkpoint
from tests.support.served import Quiet
from tests.support.tiny import TEMPLATE, write_tokenizer

NAMES = ("llama_lora", "llama_dora")
CHOICES: dict[str, dict[str, float]] = {
    "it+llama_lora": {"llama_lora": 1.0},
    "it+llama_dora+llama_lora": {"llama_dora": 1.0, "llama_lora": 1.0},
    "it+llama_lora=0.5": {"llama_lora": 0.5},
}
ASKED = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("adapted")
    for name in NAMES:
        AdapterReference(name).write(root / name)
    base = AdapterReference(NAMES[0]).base
    config = {key: value for key, value in base["config"].items() if key != "eos_token_id"}
    model = write_checkpoint(root / "model", config, base["tensors"])
    write_tokenizer(model, tokens=128)
    (model / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return root


def opened(folder: Path) -> modelkit.Model:
    return modelkit.load(folder / "model", adapters=[folder / name for name in NAMES])


@pytest.fixture(scope="module")
def client(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    settings = Settings(home=tmp_path_factory.mktemp("home"))
    pool = Pool(lambda _: opened(folder))
    with TestClient(make_app(Serving(pool, settings, log=Quiet())), base_url="http://localhost") as made:
        yield made


@contextmanager
def with_package(folder: Path, home: Path, log: Log | None = None) -> Generator[TestClient]:
    """A server whose store has the model, as `it` and as `other`."""
    lines = [f"FROM {folder / 'model'}", *(f"ADAPTER {folder / name}" for name in NAMES)]
    for name in ("it", "other"):
        modelkit.create(modelkit.Modelfile.parse("\n".join(lines)), name=name, home=home)
    settings = Settings(home=home)
    serving = Serving(Pool(StoredModels(settings, cache_memory="1MB")), settings, log=log or Quiet())
    with TestClient(make_app(serving), base_url="http://localhost") as made:
        yield made


def said(client: TestClient, name: str) -> dict[str, str]:
    """By dialect."""
    chat = client.post("/v1/chat/completions", json={"model": name, **ASKED}).json()
    theirs = client.post("/v1/messages", json={"model": name, **ASKED}).json()
    body: dict[str, Any] = {"model": name, "messages": ASKED["messages"], "stream": False}
    ollama = client.post("/api/chat", json={**body, "options": {"num_predict": 8, "temperature": 0}}).json()
    return {
        "openai": chat["choices"][0]["message"]["content"],
        "anthropic": theirs["content"][0]["text"],
        "ollama": ollama["message"]["content"],
    }


def test_an_echoed_prompt_is_scored_with_those_behind_the_name(client: TestClient, folder: Path) -> None:
    asked = {"prompt": "Hello", "echo": True, "logprobs": 0, "max_tokens": 0}
    with opened(folder) as model:
        ids = model.encode("Hello")
        other = {"it": {"llama_dora": 0.7}}
        for name, chosen in (CHOICES | other).items():
            own = {"adapters": chosen} if name in other else {}
            told = client.post("/v1/completions", json={"model": name, **asked, **own}).json()["choices"][0]
            logits = model.logits(ids, adapters=chosen)[:-1].astype(np.float64)
            wanted = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
            got = told["logprobs"]["token_logprobs"][1:]
            np.testing.assert_allclose(got, wanted[range(len(ids) - 1), ids[1:]], rtol=0, atol=1e-4)


def test_those_behind_the_name_answer(client: TestClient, folder: Path) -> None:
    with opened(folder) as model:
        wanted = {
            name: model.chat(
                [{"role": "user", "content": "Hello"}], temperature=0, num_predict=8, adapters=chosen
            )
            for name, chosen in CHOICES.items()
        }
    assert len({answer.text for answer in wanted.values()}) == len(CHOICES)
    for name, answer in wanted.items():
        assert set(said(client, name).values()) == {answer.text}


def test_vectors_and_counts_are_theirs_too(client: TestClient, folder: Path) -> None:
    made = client.post("/v1/embeddings", json={"model": "it+llama_lora", "input": "Hello"}).json()
    with opened(folder) as model:
        wanted = model.embed("Hello", adapters=["llama_lora"]).vectors[0]
    np.testing.assert_allclose(made["data"][0]["embedding"], wanted, atol=1e-6)
    counted = [
        client.post("/v1/messages/count_tokens", json={"model": name, "messages": ASKED["messages"]})
        for name in ("it", "it+llama_lora", "it+none")
    ]
    assert counted[0].json() == counted[1].json()
    assert [one.status_code for one in counted] == [200, 200, 400]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("it+", "NAME+ADAPTER"),
        ("+llama_lora", "NAME+ADAPTER"),
        ("it++llama_lora", "NAME+ADAPTER"),
        ("it+none", "none"),
    ],
)
def test_what_is_no_adapter_is_refused(client: TestClient, name: str, told: str) -> None:
    answer = client.post("/v1/chat/completions", json={"model": name, **ASKED})
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "model"


EVERYWHERE = {
    "/v1/chat/completions": ASKED,
    "/v1/completions": {"prompt": "Hello", "max_tokens": 1},
    "/v1/responses": {"input": "Hello"},
    "/v1/responses/input_tokens": {"input": "Hello"},
    "/v1/responses/compact": {"input": "Hello"},
    "/v1/embeddings": {"input": "Hello"},
}


@pytest.mark.parametrize("path", EVERYWHERE)
def test_they_are_named_once(client: TestClient, path: str) -> None:
    asked = {"model": "it+llama_lora", "adapters": ["llama_dora"], **EVERYWHERE[path]}
    answer = client.post(path, json=asked)
    assert answer.status_code == 400
    assert "in one" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", EVERYWHERE)
def test_a_field_that_names_no_adapter_is_refused_by_its_name(client: TestClient, path: str) -> None:
    answer = client.post(path, json={"model": "it", "adapters": ["none"], **EVERYWHERE[path]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "adapters")
    assert "no adapter 'none'" in answer.json()["error"]["message"]


def test_the_field_chooses_for_vectors_too(client: TestClient) -> None:
    named = client.post("/v1/embeddings", json={"model": "it+llama_lora=0.5", "input": "Hello"}).json()
    asked = {"model": "it", "adapters": {"llama_lora": 0.5}, "input": "Hello"}
    assert client.post("/v1/embeddings", json=asked).json()["data"] == named["data"]


def test_they_are_listed_behind_their_model(folder: Path, tmp_path: Path) -> None:
    lines = [f"FROM {folder / 'model'}", *(f"ADAPTER {folder / name}" for name in NAMES)]
    modelkit.create(modelkit.Modelfile.parse("\n".join(lines)), name="it", home=tmp_path)
    serving = Serving(Pool(lambda _: opened(folder)), Settings(home=tmp_path), log=Quiet())
    with TestClient(make_app(serving), base_url="http://localhost") as client:
        rows = {row["id"]: row for row in client.get("/v1/models").json()["data"]}
        one = client.get("/v1/models/it:latest+llama_dora").json()
        missing = client.get("/v1/models/it:latest+other")
        both = client.get("/v1/models/it+llama_dora+llama_lora=0.5").json()
    assert {name: row.get("parent") for name, row in rows.items()} == {
        "it:latest": None,
        "it:latest+llama_dora": "it:latest",
        "it:latest+llama_lora": "it:latest",
    }
    assert one == rows["it:latest+llama_dora"]
    assert missing.status_code == 404
    assert "It has llama_lora, llama_dora." in missing.json()["error"]["message"]
    assert (both["id"], both["parent"]) == ("it:latest+llama_dora+llama_lora=0.5", "it:latest")
    assert list(rows) == ["it:latest", *(f"it:latest+{name}" for name in NAMES)]


def test_models_are_shown_and_leave_by_names_with_adapters(folder: Path, tmp_path: Path) -> None:
    lines = [f"FROM {folder / 'model'}", *(f"ADAPTER {folder / name}" for name in NAMES)]
    modelkit.create(modelkit.Modelfile.parse("\n".join(lines)), name="it", home=tmp_path)
    serving = Serving(Pool(lambda _: opened(folder)), Settings(home=tmp_path), log=Quiet())
    asked = {"model": "it+llama_lora"}
    with TestClient(make_app(serving), base_url="http://localhost") as client:
        shown = [client.post("/api/show", json={"model": name}) for name in ("it", "it+llama_lora")]
        assert shown[0].json() == shown[1].json()
        assert shown[0].json()["adapters"] == list(NAMES)
        other = client.post("/api/show", json={"model": "it+other"})
        assert other.status_code == 400
        assert "no adapter 'other'" in other.json()["error"]
        assert client.post("/api/generate", json=asked).json()["done_reason"] == "load"
        assert len(client.get("/api/ps").json()["models"]) == 1
        left = client.post("/api/generate", json={**asked, "keep_alive": 0})
        assert left.json()["done_reason"] == "unload"
        assert client.get("/api/ps").json()["models"] == []


def test_the_log_says_what_a_request_asked_for(folder: Path, tmp_path: Path) -> None:
    """One model answers under all its names, and metrics count it as one."""
    written, asked = io.StringIO(), ["it", "other:latest", "it+llama_lora=0.5", "other"]
    with with_package(folder, tmp_path, Log(written, as_json=True)) as client:
        for name in asked:
            client.post("/v1/chat/completions", json={"model": name, **ASKED})
            client.post("/tokenize", json={"model": name, "content": "Hello"})
        client.post("/modelkit/v1/load", json={"model": "other"})
        assert client.post("/v1/chat/completions", json={"model": "it+" + "x" * 500, **ASKED}).is_error
        client.post("/v1/chat/completions", json={"model": "none", **ASKED})
        counted = client.get("/metrics").text
    lines = [json.loads(line).get("model") for line in written.getvalue().splitlines()]
    assert lines[:9] == [*(name for name in asked for _ in range(2)), "other"]
    assert lines[9:11] == ["it+" + "x" * 197, None]
    assert 'modelkit_answers_total{model="it",finish="length"} 4' in counted
    assert 'model="other' not in counted


@pytest.mark.parametrize("leave", ["/modelkit/v1/stop", "/api/generate"])
def test_models_come_and_leave_by_names_with_adapters(folder: Path, tmp_path: Path, leave: str) -> None:
    known, more = {"model": "it+llama_lora"}, {} if leave.endswith("stop") else {"keep_alive": 0}
    unknown = {"model": "it+other"}
    with with_package(folder, tmp_path) as client:
        found = client.get("/modelkit/v1/find", params=known).json()
        assert (found["name"], found["loaded"]) == ("it:latest", False)
        came = client.post("/modelkit/v1/load", json={**known, "keep_alive": "1h"})
        assert came.json()["facts"]["adapters"] == list(NAMES)
        assert client.post("/modelkit/v1/load", json=unknown).status_code == 400
        refused = client.post(leave, json={**unknown, **more})
        assert refused.status_code == 400
        assert "no adapter 'other'" in str(refused.json())
        assert [one["name"] for one in client.get("/modelkit/v1/ps").json()["models"]] == ["it:latest"]
        left = client.post(leave, json={"model": "other+llama_lora", **more}).json()  # the same package
        assert left.get("stopped", left.get("done_reason")) in (True, "unload")
        there = client.get("/modelkit/v1/ps").json()["models"]
        assert {one["state"] for one in there} <= {"leaving"}


def test_the_servers_own_answers_call_a_model_as_they_were_asked_to(folder: Path, tmp_path: Path) -> None:
    asked = {"prompt": "Hello", "parameters": {"num_predict": 1}}
    with with_package(folder, tmp_path) as client:
        for name, plain in (("it", "it"), ("other:latest", "other"), ("other+llama_lora", "other")):
            loaded = client.post("/modelkit/v1/load", json={"model": name}).json()
            assert loaded["facts"]["name"] == plain
            said = client.post("/modelkit/v1/generate", json={"model": name, **asked}).text
            lines = [json.loads(line) for line in said.splitlines() if line]  # blank ones are signs of life
            assert [line["model"] for line in lines if "model" in line] == [name]


def test_notes_call_a_model_as_they_were_asked_to(folder: Path, tmp_path: Path) -> None:
    with with_package(folder, tmp_path) as client:
        client.post("/modelkit/v1/load", json={"model": "it"})
        asked = {"model": "other", "messages": ASKED["messages"], "stream": False}
        answers = [
            client.post("/api/chat", json={**asked, "options": {"num_predict": 1, "num_ctx": 99_999}}),
            client.post("/v1/chat/completions", json={**asked, "max_tokens": 1, "reasoning_effort": "low"}),
        ]
        told = [answer.headers["x-modelkit-notes"] for answer in answers]
    assert "; other was loaded with" in told[0]
    assert told[1].startswith("other does not think")


def test_all_names_of_a_package_in_memory_are_listed_as_loaded(folder: Path, tmp_path: Path) -> None:
    with with_package(folder, tmp_path) as client:
        rows = client.get("/v1/models").json()["data"]
        assert not any(row["loaded"] for row in rows)
        client.post("/modelkit/v1/load", json={"model": "it"})
        rows = client.get("/v1/models").json()["data"]
        assert {row["id"].partition("+")[0] for row in rows if row["loaded"]} == {"it:latest", "other:latest"}
        assert client.get("/v1/models/other").json()["loaded"]


def test_a_model_stays_while_a_name_of_it_is_left(folder: Path, tmp_path: Path) -> None:
    with with_package(folder, tmp_path) as client:
        for name in ("other", "it"):
            client.post("/modelkit/v1/load", json={"model": name, "keep_alive": "1h"})

        def there() -> list[tuple[str, str]]:
            shown = client.get("/modelkit/v1/ps").json()["models"]
            return [(one["name"], one["state"]) for one in shown if one["state"] != "leaving"]

        assert client.request("DELETE", "/api/delete", json={"model": "other"}).status_code == 200
        assert there() == [("it:latest", "ready")]
        assert client.request("DELETE", "/api/delete", json={"model": "it"}).status_code == 200
        assert there() == []
