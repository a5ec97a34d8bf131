"""`/tokenize`, `/detokenize`, `/apply-template`, `/props`: what a prompt is made of."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import modelkit
from modelkit.model import Model
from modelkit.server.app import make_app
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.served import Quiet
from tests.support.tiny import TEMPLATE, write_model

THINKER = TEMPLATE.replace(
    "<assistant>", "<assistant>[{{ brief }}]{% if enable_thinking is not false %}<think>{% endif %}"
)


@contextmanager
def answering(folder: Path, template: str) -> Iterator[TestClient]:
    """A server of one model with this template."""
    model = write_model(folder / "model", template=template)

    def opened(name: str) -> Model:
        return modelkit.load(model, home=folder, temperature=0.5)

    pool = Pool(opened)
    serving = Serving(pool, Settings.from_environment({"MODELKIT_HOME": str(folder)}), log=Quiet())
    with TestClient(make_app(serving), base_url="http://localhost") as client:
        yield client
    asyncio.run(pool.close())


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with answering(tmp_path_factory.mktemp("home"), TEMPLATE) as client:
        yield client


def test_text_goes_to_tokens_and_back(client: TestClient) -> None:
    ids = client.post("/tokenize", json={"model": "tiny", "content": "Hé<end>"}).json()["tokens"]
    assert ids[-1] == 256
    assert client.post("/detokenize", json={"model": "tiny", "tokens": ids}).json() == {"content": "Hé<end>"}
    asked = {"model": "tiny", "content": "é", "with_pieces": True}
    pieces = [one["piece"] for one in client.post("/tokenize", json=asked).json()["tokens"]]
    assert pieces == [[0xC3], [0xA9]]  # a token that is half a character is told by its bytes


def test_a_conversation_becomes_its_prompt(client: TestClient) -> None:
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
    assert client.post("/apply-template", json=asked).json() == {"prompt": "<user>Hi<assistant>"}
    begun = {**asked, "messages": [*asked["messages"], {"role": "assistant", "content": "Once"}]}
    assert client.post("/apply-template", json=begun).json() == {"prompt": "<user>Hi<assistant>Once"}
    anew = {**begun, "add_generation_prompt": True}
    assert client.post("/apply-template", json=anew).json() == {
        "prompt": "<user>Hi<assistant>Once<assistant>"
    }


@pytest.mark.parametrize(
    ("asked", "opening"),
    [
        ({}, "[]<think>"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "[]"),
        ({"reasoning_effort": "none", "chat_template_kwargs": {"brief": "yes"}}, "[yes]"),
        ({"reasoning_budget": 5}, "[]<think>"),
    ],
)
def test_a_prompt_is_that_of_a_model_told_how_to_think(
    tmp_path: Path, asked: dict[str, object], opening: str
) -> None:
    turns = [{"role": "user", "content": "Hi"}]
    with answering(tmp_path, THINKER) as client:
        made = client.post("/apply-template", json={"model": "tiny", "messages": turns, **asked})
        assert made.json() == {"prompt": f"<user>Hi<assistant>{opening}"}
        unknown = {"model": "tiny", "messages": turns, "chat_template_kwargs": {"mood": "good"}}
        refused = client.post("/apply-template", json=unknown)
    assert refused.status_code == 400
    assert "chat_template_kwargs" in refused.text


def test_props_say_what_is_loaded(client: TestClient) -> None:
    found = client.get("/props", params={"model": "tiny"}).json()
    assert found["default_generation_settings"]["n_ctx"] == 256
    assert found["default_generation_settings"]["params"] == {"temperature": 0.5}
    assert found["chat_template"] == TEMPLATE
    assert client.get("/props").json() == found  # one alone needs no name


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"model": "tiny", "content": 5}),
        ("/tokenize", {"model": "tiny", "prompt": "as vLLM calls it"}),
        ("/tokenize", {"model": "tiny", "content": None}),
        ("/tokenize", {"model": "tiny", "content": "", "parse_special": False}),
        ("/detokenize", {"model": "tiny", "ids": [1]}),
        ("/modelkit/v1/decode", {"model": "tiny", "tokens": [1]}),
        ("/detokenize", {"model": "tiny", "tokens": ["a"]}),
        ("/detokenize", {"model": "tiny", "tokens": [-1]}),
        ("/detokenize", {"model": "tiny", "tokens": [True]}),
        ("/apply-template", {"model": "tiny", "messages": []}),
    ],
)
def test_what_is_wrong_is_refused(client: TestClient, path: str, body: dict[str, object]) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert next(iter(answer.json())) == "error"
