"""A model that makes embeddings and writes no text, through the official clients: vectors, plain refusals."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import numpy as np
import ollama
import openai
import pytest

import modelkit
from modelkit.server.models.model_source import StoredModels
from modelkit.settings import Settings
from tests.support.encoder_folders import write_encoder
from tests.support.served import served
from tests.support.tiny import write_model

TEXTS = ["Once upon a time", "rain", "there was a small cat that liked tea"]
SAID = "story makes embeddings and writes no text"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    write_encoder(folder / "model", "modernbert")
    (folder / "model" / "sentence_bert_config.json").write_text('{"max_seq_length": 40}')
    (folder / "Modelfile").write_text("FROM ./model\n")
    modelkit.create(folder / "Modelfile", name="story", home=folder / "home", quantize="q8")
    return folder / "home"


@pytest.fixture(scope="module")
def vectors(home: Path) -> np.ndarray:
    with modelkit.load("story", home=home) as model:
        return model.embed(TEXTS).vectors


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    with served(StoredModels(Settings(home)), home) as url:
        yield url


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_openai(openais: openai.OpenAI, vectors: np.ndarray, encoding: Any) -> None:
    made = openais.embeddings.create(model="story", input=TEXTS, encoding_format=encoding)
    found = [
        np.frombuffer(base64.b64decode(one.embedding), np.float32)  # pyright: ignore[reportArgumentType]
        if encoding == "base64"
        else one.embedding
        for one in made.data
    ]
    assert np.abs(np.array(found) - vectors).max() < 1e-7
    assert made.usage.prompt_tokens == 6 + 3 + 10


def test_ollama(ollamas: ollama.Client, vectors: np.ndarray) -> None:
    made = ollamas.embed("story", TEXTS)
    assert np.abs(np.array(made.embeddings) - vectors).max() < 1e-7
    alone = ollamas.embeddings("story", TEXTS[1]).embedding
    assert np.abs(np.array(alone) / np.linalg.norm(alone) - vectors[1]).max() < 1e-6
    cut = np.array(ollamas.embed("story", TEXTS[:1], dimensions=8).embeddings)
    assert cut.shape == (1, 8)
    with pytest.raises(ollama.ResponseError, match="exceeds the context length") as raised:
        ollamas.embed("story", "rain " * 80, truncate=False)
    assert raised.value.status_code == 400


def test_what_it_can(ollamas: ollama.Client, address: str) -> None:
    (listed,) = httpx.get(f"{address}/api/tags").json()["models"]
    assert listed["capabilities"] == ["embedding"]
    shown = ollamas.show("story")
    assert shown.capabilities == ["embedding"]
    assert (shown.modelinfo or {})["modernbert.context_length"] == 66
    assert (shown.modelinfo or {})["modernbert.embedding_length"] == 64


TURN: Any = [{"role": "user", "content": "rain"}]


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.chat("story", TURN),
        lambda client: client.generate("story", "rain"),
        lambda client: client.generate("story", "rain", raw=True),
    ],
)
def test_ollamas_clients_who_ask_for_text_are_told(
    ollamas: ollama.Client, ask: Callable[[ollama.Client], Any]
) -> None:
    with pytest.raises(ollama.ResponseError, match=SAID) as raised:
        ask(ollamas)
    assert raised.value.status_code == 400


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.chat.completions.create(model="story", messages=TURN),
        lambda client: client.chat.completions.create(model="story", messages=TURN, stream=True),
        lambda client: client.completions.create(model="story", prompt="rain"),
        lambda client: client.responses.create(model="story", input="rain"),
    ],
)
def test_so_are_openais(openais: openai.OpenAI, ask: Callable[[openai.OpenAI], Any]) -> None:
    with pytest.raises(openai.BadRequestError, match=SAID):
        ask(openais)


def test_so_are_anthropics(address: str) -> None:
    with (
        anthropic.Anthropic(base_url=address, api_key="x", max_retries=0) as client,
        pytest.raises(anthropic.BadRequestError, match=SAID),
    ):
        client.messages.create(model="story", max_tokens=4, messages=TURN)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/apply-template", {"messages": [{"role": "user", "content": "rain"}]}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "rain"}]}),
        ("/v1/responses/input_tokens", {"input": "rain"}),
    ],
)
def test_so_is_who_asks_what_a_prompt_would_be(address: str, path: str, body: dict[str, Any]) -> None:
    answer = httpx.post(f"{address}{path}", json={"model": "story", **body})
    assert answer.status_code == 400, answer.text


def test_the_rest_is_as_for_any_model(address: str) -> None:
    ids = httpx.post(f"{address}/tokenize", json={"model": "story", "content": "rain"}).json()["tokens"]
    assert ids
    assert httpx.post(f"{address}/api/generate", json={"model": "story", "stream": False}).status_code == 200
    (shown,) = httpx.get(f"{address}/api/ps").json()["models"]
    assert (shown["name"], shown["context_length"]) == ("story:latest", 40)
    assert httpx.get(f"{address}/props", params={"model": "story"}).status_code == 200


@pytest.mark.parametrize("loaded", [False, True])
def test_a_context_is_what_is_read_of_a_text(home: Path, loaded: bool) -> None:
    """And not what the model's weights could follow: clients cut their texts by it."""
    with served(StoredModels(Settings(home)), home) as url:
        if loaded:
            httpx.post(f"{url}/api/generate", json={"model": "story", "stream": False})
        (listed,) = httpx.get(f"{url}/v1/models").json()["data"]
        text = {"model": "story", "input": "rain " * 80}
        refused = httpx.post(f"{url}/v1/embeddings", json=text).json()["error"]["message"]
    assert listed["loaded"] is loaded
    assert (listed["max_model_len"], listed["meta"]["n_ctx_train"]) == (40, 66)
    assert "maximum context length is 40 tokens" in refused


@pytest.fixture(scope="module")
def both(home: Path) -> Iterator[str]:
    """A server of its own, with a package that writes beside."""
    write_model(home / "writer", template="{{ messages[0].content }}", max_position_embeddings=256)
    (home / "Modelfile").write_text("FROM ./writer\nPARAMETER num_predict 2\n")
    modelkit.create(home / "Modelfile", name="writer", home=home)
    with served(StoredModels(Settings(home)), home) as url:
        yield url


def test_who_leaves_the_name_out_gets_what_can_answer(both: str) -> None:
    """Text of the only loaded model that writes any, vectors of the only one that makes nothing else."""
    said = [{"role": "user", "content": "rain"}]
    asked: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": said},
        "/v1/completions": {"prompt": "rain"},
        "/v1/responses": {"input": "rain"},
        "/apply-template": {"messages": said},
        "/v1/messages": {"messages": said, "max_tokens": 2, "model": "claude-next-9"},
    }
    with httpx.Client(base_url=both, timeout=60) as client:
        assert client.post("/v1/embeddings", json={"model": "story", "input": "rain"}).status_code == 200
        for path, body in asked.items():
            refused = client.post(path, json=body)
            assert refused.status_code in (400, 404), path
            assert "writes text" in refused.text or "model is missing" in refused.text
        assert client.post("/tokenize", json={"content": "rain"}).json()["tokens"]
        assert (
            client.post("/v1/chat/completions", json={"model": "writer", "messages": said}).status_code == 200
        )
        for path, body in asked.items():
            answered = client.post(path, json=body)
            assert answered.status_code == 200, answered.text
            assert path == "/apply-template" or answered.json()["model"] in ("writer", "claude-next-9")
        made = client.post("/v1/embeddings", json={"input": "rain"}).json()
        assert (made["model"], len(made["data"][0]["embedding"])) == ("story", 64)
        ambiguous = client.post("/tokenize", json={"content": "rain"})
        assert (ambiguous.status_code, "model is missing" in ambiguous.text) == (400, True)
