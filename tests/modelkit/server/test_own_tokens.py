"""`/tokenize`, `/detokenize`, `/apply-template`, `/props`: what a prompt is made of."""

import asyncio
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

import modelkit
from modelkit.model import Model
from modelkit.server.app import make_app
from modelkit.server.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.served import Quiet
from tests.support.tiny import TEMPLATE, write_model


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    home = tmp_path_factory.mktemp("home")
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE)

    def opened(name: str) -> Model:
        return modelkit.load(folder, home=home, temperature=0.5)

    pool = Pool(opened)
    serving = Serving(pool, Settings.from_environment({"MODELKIT_HOME": str(home)}), log=Quiet())
    with TestClient(make_app(serving), base_url="http://localhost") as client:
        yield client
    asyncio.run(pool.close())


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
        ("/tokenize", {"model": "tiny", "content": "", "parse_special": False}),
        ("/detokenize", {"model": "tiny", "tokens": ["a"]}),
        ("/detokenize", {"model": "tiny", "tokens": [-1]}),
        ("/detokenize", {"model": "tiny", "tokens": [True]}),
        ("/apply-template", {"model": "tiny", "messages": []}),
    ],
)
def test_what_is_wrong_is_refused(client: TestClient, path: str, body: dict[str, object]) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]
