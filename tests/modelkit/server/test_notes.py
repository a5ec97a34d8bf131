"""What of a request could not be enforced is said over HTTP too: in a header, and in our own last line."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.responses import Response
from starlette.testclient import TestClient

import modelkit
from modelkit.client.answers import ServedAnswer
from modelkit.server.app import make_app
from modelkit.server.http.own_headers import NOTES, with_notes
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.served import Quiet
from tests.support.tiny import write_model

TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)y"}}}
FUNCTION = {"name": "wetter_für", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]
SAID = "arguments of wetter_"
ASKED: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {**ASKED, "tools": TOOLS, "max_tokens": 2, "n": 2},
    "/v1/responses": {
        "model": "tiny",
        "input": "Hi",
        "max_output_tokens": 2,
        "tools": [{"type": "function", **FUNCTION}],
    },
    "/v1/messages": {
        **ASKED,
        "max_tokens": 2,
        "tools": [{"name": FUNCTION["name"], "input_schema": SCHEMA}],
    },
    "/api/chat": {**ASKED, "tools": TOOLS, "options": {"num_predict": 2}},
    "/modelkit/v1/chat": {**ASKED, "tools": TOOLS, "parameters": {"num_predict": 2}},
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    home = tmp_path_factory.mktemp("home")
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE, max_position_embeddings=2048)
    pool = Pool(lambda name: modelkit.load(folder, home=home))
    serving = Serving(pool, Settings.from_environment({"MODELKIT_HOME": str(home)}), log=Quiet())
    with TestClient(make_app(serving), base_url="http://localhost") as client:
        client.post("/modelkit/v1/load", json={"model": "tiny"})
        yield client
    asyncio.run(pool.close())


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("path", BODIES)
def test_every_dialect_says_it_in_a_header(client: TestClient, path: str, streamed: bool) -> None:
    more = {} if path.startswith("/modelkit") else {"stream": streamed}
    answer = client.post(path, json={**BODIES[path], **more})
    assert answer.status_code == 200, answer.text
    assert answer.headers[NOTES].count(SAID) == 1
    assert answer.headers[NOTES].isascii()
    assert NOTES not in client.post(path, json={**BODIES[path], **more, "tools": []}).headers


def test_our_own_client_reads_them_in_the_last_line(client: TestClient) -> None:
    text = client.post("/modelkit/v1/chat", json=BODIES["/modelkit/v1/chat"]).text

    @contextmanager
    def lines() -> Iterator[Any]:
        yield (json.loads(one) for one in text.splitlines() if one)

    (note,) = ServedAnswer(lines(), 0, lambda _: None).whole().notes
    assert note.startswith("arguments of wetter_für are not held to all of its schema: ")
    plain = client.post("/modelkit/v1/chat", json=ASKED | {"parameters": {"num_predict": 1}}).text
    assert "notes" not in json.loads(plain.splitlines()[-1])


def test_a_header_stays_short_and_plain() -> None:
    notes = [f"{number}: a|b\r\nx-other: 1 \u00e4" + "x" * 900 for number in range(20)]
    said = with_notes(Response(), [*notes, notes[0]]).headers[NOTES]
    assert said.startswith("0: a?b?x-other: 1 ?xxx")
    assert said.endswith(" | ... 12 more")
    assert said.isascii()
    assert said.isprintable()
    assert len(said) < 8 * 310
