"""The official client of Ollama against the server: sync and async, streamed or not."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest

import modelkit
from modelkit.answers.generation import Finish, Generation
from modelkit.errors import ModelNotFound
from modelkit.model import Model
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from modelkit.server.http.own_headers import IGNORED
from modelkit.server.limits import Limits
from modelkit.server.ollama.lines import Lines
from runtime.engine.request import Usage
from tests.support.served import scripted, served
from tests.support.tiny import TEMPLATE, write_model

HELLO = [{"role": "user", "content": "Hello"}]
SHORT = {"num_predict": 8, "seed": 1}
THINKER = TEMPLATE.replace("<assistant>", "<assistant>{% if enable_thinking %}<think>{% endif %}")
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALLS: list[Event] = [
    *(Thinking("Hm"), Thinking("."), Text("Let me "), Text("see.")),
    *(
        CallStart(0, "call_a", "weather"),
        CallArguments(0, '{"city": '),
        CallArguments(0, '"Rome"}'),
        CallEnd(0),
    ),
    *(CallStart(1, "call_b", "clock"), CallArguments(1, "{}"), CallEnd(1)),
]
BROKEN: dict[str, list[Event]] = {
    'weather({"city")': [CallArguments(0, '{"city"'), CallEnd(0)],
    'weather({"city": Rome})': [CallArguments(0, '{"city": '), CallEnd(0, "Rome}")],
    "weather(Rome)": [CallEnd(0, "Rome")],
    'weather({"far": 1e999})': [CallArguments(0, '{"far": 1e999}'), CallEnd(0)],
}
"""Calls that are none, by what is told of them."""
ENDS = "a\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029b 日 🙂"
"""All that ends a line for Python."""


def script(messages: Any, **options: Any) -> list[Event]:
    """What the conversation asks for."""
    if (broken := BROKEN.get(messages[-1].content)) is not None:
        return [CallStart(0, "call_a", "weather"), *broken]
    if options.get("format"):
        return [Text(json.dumps(options["format"]))]
    return [Text(said)] if (said := messages[-1].content) == ENDS else CALLS


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("home")
    templates = {"tiny": TEMPLATE, "actor": TEMPLATE, "thinker": THINKER, "bare": None}

    def opened(name: str) -> Model:
        if name not in templates:
            raise ModelNotFound(f"model '{name}' not found")
        folder = write_model(tmp_path_factory.mktemp("model"), template=templates[name])
        model = modelkit.load(folder, home=home)
        return scripted(model, script) if name == "actor" else model

    with served(opened, home) as url:
        yield url


GO = threading.Semaphore(0)
"""Each place lets a load, or the reading of a prompt, go on."""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Waits for GO to load and to read the prompt, and says that it lives every 30 ms."""
    home = tmp_path_factory.mktemp("home")
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE)

    def opened(name: str) -> Model:
        assert GO.acquire(timeout=100)
        if name == "none":
            raise ModelNotFound("model 'none' not found")

        def script(messages: Any, **options: Any) -> list[Event]:
            assert GO.acquire(timeout=100)
            return CALLS

        return scripted(modelkit.load(folder, home=home), script)

    with served(opened, home, limits=Limits(heartbeat_s=0.03)) as url:
        yield url


def test_lines_without_content_come_while_nothing_else_does(slow: str) -> None:
    parts, lines = list[ollama.ChatResponse](), list[str]()
    with ollama.Client(host=slow) as client:
        for part in client.chat("actor", messages=HELLO, stream=True):
            parts.append(part)
            if len(parts) in (2, 4):  # it is loaded, and the prompt is read
                GO.release()
        GO.release()
        whole = client.chat("actor", messages=HELLO)
    silent = [part for part in parts[:-1] if not (part.message.content or part.message.tool_calls)]
    assert len([part for part in silent if not part.message.thinking]) > 3
    assert not any(part.done for part in silent)
    assert "".join(part.message.content or "" for part in parts) == whole.message.content == "Let me see."
    with httpx.stream("POST", f"{slow}/api/chat", json={"model": "actor", "messages": HELLO}) as answer:
        for line in answer.iter_lines():
            lines.append(line)
            if len(lines) == 1:
                GO.release()
    for one in lines:
        ollama.ChatResponse.model_validate(json.loads(one), strict=True)
    assert json.loads(lines[0])["message"] == {"role": "assistant", "content": ""}


def test_an_error_after_a_sign_of_life_is_a_line(slow: str) -> None:
    with ollama.Client(host=slow) as client:
        parts = client.generate("none", prompt="Hi", stream=True)
        next(parts)
        GO.release()
        with pytest.raises(ollama.ResponseError, match="not found"):
            list(parts)


def test_a_chat_is_answered(client: ollama.Client) -> None:
    answer = client.chat("tiny", messages=HELLO, options=SHORT)
    assert answer.done
    assert answer.done_reason in ("stop", "length")
    assert answer.message.role == "assistant"
    assert answer.prompt_eval_count == len("<user>Hello<assistant>")
    assert 0 < (answer.eval_count or 0) <= 8
    assert (answer.total_duration or 0) > (answer.eval_duration or 0) > 0


def test_a_stream_joins_to_the_whole_answer(client: ollama.Client) -> None:
    whole = client.chat("tiny", messages=HELLO, options=SHORT)
    parts = list(client.chat("tiny", messages=HELLO, options=SHORT, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count


@pytest.mark.parametrize("logprobs", [False, True])
def test_ends_of_lines_in_a_text_end_no_line(client: ollama.Client, logprobs: bool) -> None:
    asked = [{"role": "user", "content": ENDS}]
    pieces = [*client.chat("actor", asked, stream=True, logprobs=logprobs)]
    assert "".join(one.message.content or "" for one in pieces) == ENDS
    assert client.chat("actor", asked).message.content == ENDS


def test_the_async_client_gets_the_same(address: str, client: ollama.Client) -> None:
    async def ask() -> tuple[str, str]:
        async with ollama.AsyncClient(host=address) as other:
            whole = await other.generate("tiny", prompt="Hello", options=SHORT)
            parts = await other.generate("tiny", prompt="Hello", options=SHORT, stream=True)
            return whole.response or "", "".join([part.response or "" async for part in parts])

    whole, streamed = asyncio.run(ask())
    assert whole == streamed == client.generate("tiny", prompt="Hello", options=SHORT).response


def test_calls_of_tools_come_whole(client: ollama.Client) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    for stream in (False, True):
        given: Any = client.chat("actor", messages=HELLO, tools=[tool], stream=stream)
        parts = list(given) if stream else [given]
        calls = [call for part in parts for call in part.message.tool_calls or []]
        assert [(call.function.name, call.function.arguments) for call in calls] == [
            ("weather", {"city": "Rome"}),
            ("clock", {}),
        ]
        assert "".join(part.message.thinking or "" for part in parts) == "Hm."
        assert "".join(part.message.content or "" for part in parts) == "Let me see."
        assert parts[-1].done_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("said", BROKEN)
def test_a_call_that_is_no_json_is_told_as_text(client: ollama.Client, said: str, stream: bool) -> None:
    asked: Any = {"messages": [{"role": "user", "content": said}], "stream": stream}
    answers = list(client.chat("actor", **asked)) if stream else [client.chat("actor", **asked)]
    assert [one.message.tool_calls for one in answers] == [None] * len(answers)
    assert "".join(one.message.content or "" for one in answers) == said


def test_a_call_that_was_cut_off_behind_its_name_is_none() -> None:
    """A client would run it, without the arguments that were to come."""
    cut = Generation("", (1,), Usage(9, 4, 5), "length", 0)
    lines = Lines("chat", "actor")
    said = lines.batch(0, [CallStart(0, "call_a", "weather"), CallEnd(0), Finish(cut)])
    (last,) = map(json.loads, said.splitlines())
    assert (last["message"], last["done_reason"]) == ({"role": "assistant", "content": ""}, "length")


def test_a_format_reaches_the_model(client: ollama.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert client.chat("actor", messages=HELLO, format=schema).message.content == json.dumps(schema)


def test_log_probabilities_have_the_tokens_of_the_text(client: ollama.Client) -> None:
    asked = {"options": SHORT, "logprobs": True, "top_logprobs": 2}
    whole = client.generate("tiny", prompt="Hello", raw=True, **asked)
    told = whole.logprobs or []
    assert len(told) == whole.eval_count
    assert all(len(one.top_logprobs or []) == 2 for one in told)
    streamed = client.generate("tiny", prompt="Hello", raw=True, stream=True, **asked)
    assert [one.token for part in streamed for one in part.logprobs or []] == [one.token for one in told]


def test_a_context_that_comes_back_stands_before_the_prompt(client: ollama.Client) -> None:
    first = client.generate("tiny", prompt="Hello", options=SHORT)
    assert len(first.context or []) == (first.prompt_eval_count or 0) + (first.eval_count or 0)
    again = client.generate("tiny", prompt="And?", options=SHORT, context=first.context)
    assert again.prompt_eval_count == len(first.context or []) + len("<user>And?<assistant>")
    assert client.generate("tiny", prompt="Hi", raw=True, options=SHORT).context is None


def test_an_empty_request_loads_and_unloads(client: ollama.Client, address: str) -> None:
    assert client.generate("tiny").done_reason == "load"
    assert client.chat("tiny").done_reason == "load"
    answer = httpx.post(f"{address}/api/generate", json={"model": "tiny", "keep_alive": 0})
    assert answer.json()["done_reason"] == "unload"
    assert list(answer.json()) == ["model", "created_at", "response", "done", "done_reason"]


@pytest.mark.parametrize("keep_alive", [10**12, "99999999h", -1])
def test_whoever_asks_for_ages_has_its_model_for_ever(address: str, keep_alive: Any) -> None:
    """No calendar has a date for their end, and nothing else may fail for that."""
    body = {"model": "tiny", "keep_alive": keep_alive}
    assert httpx.post(f"{address}/api/generate", json=body).status_code == 200
    models = httpx.get(f"{address}/modelkit/v1/ps").json()["models"]
    (shown,) = (one for one in models if one["name"] == "tiny")
    assert (shown["expires_at"], shown["expires_in_s"]) == ("never", None)
    assert httpx.post(f"{address}/modelkit/v1/load", json={**body, "keep_alive": 60}).status_code == 200


@pytest.mark.parametrize(
    "template", ["<{{ .Prompt }}>", "{% for m in messages %}<{{ m.content }}>{% endfor %}"]
)
@pytest.mark.parametrize("model", ["tiny", "bare"])
def test_a_request_may_bring_its_template(client: ollama.Client, model: str, template: str) -> None:
    asked: dict[str, Any] = {"template": template, "options": SHORT}
    answer = client.generate(model, prompt="Hi", **asked)
    assert answer.prompt_eval_count == len("<Hi>")
    bare = client.generate(model, prompt="<Hi>", raw=True, options=SHORT)
    assert answer.response == bare.response
    again = client.generate(model, prompt="Yo", context=answer.context, **asked)
    assert again.prompt_eval_count == len(answer.context or []) + len("<Yo>")


def test_a_conversation_may_bring_its_template(address: str) -> None:
    for name, prompt in (("tiny", "<user>Hello<assistant>"), ("bare", None)):
        body = {"model": name, "messages": HELLO, "stream": False, "options": SHORT}
        own = httpx.post(f"{address}/api/chat", json={**body, "template": "[{{ .Prompt }}]"}).json()
        assert own["prompt_eval_count"] == len("[Hello]")
        if prompt:  # and the next one has the model's again
            assert httpx.post(f"{address}/api/chat", json=body).json()["prompt_eval_count"] == len(prompt)


@pytest.mark.parametrize(("think", "more"), [(None, "<think>"), (True, "<think>"), (False, "")])
def test_a_model_that_can_think_thinks_unless_told_otherwise(
    client: ollama.Client, think: bool | None, more: str
) -> None:
    prompt = len("<user>Hello<assistant>" + more)
    assert client.chat("thinker", HELLO, think=think, options=SHORT).prompt_eval_count == prompt
    assert client.generate("thinker", "Hello", think=think, options=SHORT).prompt_eval_count == prompt


def test_a_model_that_cannot_think_is_told_not_to(client: ollama.Client) -> None:
    """Clients say so to every model."""
    assert client.chat("tiny", HELLO, think=False, options=SHORT).done
    assert client.generate("tiny", "Hello", think=False, options=SHORT).done


def test_num_ctx_limits_a_request_and_loads_nothing(client: ollama.Client) -> None:
    answer = client.generate("tiny", prompt="a" * 40, raw=True, options={"num_ctx": 50, "num_predict": 30})
    assert answer.eval_count == 10
    assert answer.done_reason == "length"
    assert client.generate("tiny", prompt="a", raw=True, options={"num_ctx": 10**7, "num_predict": 2}).done


@pytest.mark.parametrize(("wanted", "noted"), [(50, False), (10**7, True)])
def test_a_context_that_is_not_as_long_as_asked_is_noted(wanted: int, noted: bool, address: str) -> None:
    body = {"model": "tiny", "prompt": "a", "options": {"num_ctx": wanted, "num_predict": 2}, "stream": False}
    notes = httpx.post(f"{address}/api/generate", json=body).headers.get("x-modelkit-notes", "")
    assert ("options.num_ctx is 10000000; " in notes) is noted


def test_what_did_nothing_is_named_in_a_header(address: str) -> None:
    options = {"num_gpu": 1, "x y\n": 2, **SHORT}
    body = {"model": "tiny", "prompt": "Hi", "stream": False, "options": options}
    headers = httpx.post(f"{address}/api/generate", json=body).headers
    assert headers[IGNORED] == "options.num_gpu, options.x?y?"
    body = {"model": "bare", "prompt": "Hi", "stream": False, "options": {"think_tokens": 3, **SHORT}}
    answer = httpx.post(f"{address}/api/generate", json=body | {"think": False})
    assert (answer.status_code, answer.headers[IGNORED]) == (200, "think, options.think_tokens")
    many = {f"field, {number}": 1 for number in range(1000)}
    named = httpx.post(f"{address}/api/generate", json=body | many).headers[IGNORED]
    assert named.startswith("field?0, field?1, ")
    assert named.endswith("... 969 more")
    assert len(named) < 4000


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("chat", {"model": "none", "messages": HELLO}, 404, "model 'none' not found"),
        ("chat", {"messages": HELLO}, 400, "model is required"),
        (
            "chat",
            {"model": "tiny", "messages": HELLO, "think": True},
            400,
            '"tiny" does not support thinking',
        ),
        ("chat", {"model": "tiny", "messages": HELLO, "tools": [TOOL]}, 400, '"tiny" does not support tools'),
        ("chat", {"model": "bare", "messages": HELLO}, 400, '"bare" does not support chat'),
        ("generate", {"model": "tiny", "prompt": "a", "think": "low"}, 400, "does not support thinking"),
        ("generate", {"model": "tiny", "prompt": "a", "template": "{{ .Prompt"}, 400, "line 1, column"),
        ("chat", {"model": "tiny", "messages": HELLO, "template": "a\n{% if %}"}, 400, "line 2"),
        ("generate", {"model": "tiny", "prompt": "a", "template": "no action"}, 400, "neither jinja"),
        (
            "generate",
            {"model": "tiny", "prompt": "a", "template": "{{ .Prompt }}", "raw": True},
            400,
            "raw mode",
        ),
        (
            "generate",
            {"model": "tiny", "prompt": "a", "template": "{{ .Prompt }}", "suffix": "b"},
            400,
            "suffix",
        ),
        ("generate", {"model": "tiny", "prompt": "a", "template": "{{ 9 * '9' * 10**9 }}"}, 400, "template"),
        ("chat", {"model": "tiny", "messages": HELLO, "options": {"top_k": "x"}}, 400, 'option "top_k" must'),
        ("generate", {"model": "tiny", "prompt": "a" * 999, "raw": True}, 400, "the prompt has 999 tokens"),
        ("generate", {"model": "tiny", "prompt": "a", "suffix": "b"}, 400, '"tiny" does not support insert'),
        ("generate", {"model": "tiny", "prompt": "a", "format": {"type": 5}}, 400, "format"),
    ],
)
def test_an_error_is_one_text(address: str, path: str, body: dict[str, Any], status: int, text: str) -> None:
    for stream in (False, True):
        answer = httpx.post(f"{address}/api/{path}", json={**body, "stream": stream})
        assert answer.status_code == status, answer.text
        assert list(answer.json()) == ["error"]
        assert text in answer.json()["error"]


def test_lines_have_gos_keys_in_gos_order(address: str) -> None:
    answer = httpx.post(f"{address}/api/chat", json={"model": "actor", "messages": HELLO})
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.split("\n")[:-1]]
    assert {tuple(line) for line in lines[:-1]} == {("model", "created_at", "message", "done")}
    assert list(lines[-1]) == [
        *("model", "created_at", "message", "done", "done_reason"),
        *("total_duration", "load_duration", "prompt_eval_count", "eval_count"),
    ]
    assert lines[-1]["message"] == {"role": "assistant", "content": ""}
    called = [line["message"]["tool_calls"] for line in lines if "tool_calls" in line["message"]]
    assert called[0] == [
        {"id": "call_a", "function": {"index": 0, "name": "weather", "arguments": {"city": "Rome"}}}
    ]
    assert called[1][0]["function"]["index"] == 1
    for line in lines:
        ollama.ChatResponse.model_validate(line, strict=True)


WHY = {"role": "user", "content": "Why is the sky blue?"}
SCHEMA = {
    "title": "ResponseFormat",
    "type": "object",
    "properties": {
        "answer": {"title": "Answer", "type": "string"},
        "confidence": {"title": "Confidence", "type": "number"},
    },
    "required": ["answer", "confidence"],
}
PICTURE = {"role": "user", "content": "What is in this image?", "images": ["iVBORw0KGgo="]}
ADD = {
    "name": "add_two_numbers",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "required": ["a", "b"],
        "properties": {"a": {"type": "integer", "description": ""}, "b": {"type": "integer"}},
    },
}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("chat", {"messages": [WHY], "tools": []}, 200),
        ("chat", {"messages": [WHY], "tools": [], "format": "json"}, 200),
        ("chat", {"messages": [WHY], "tools": [], "format": SCHEMA}, 200),
        ("chat", {"messages": [WHY], "tools": [], "logprobs": True, "top_logprobs": 3}, 200),
        ("chat", {"messages": [PICTURE], "tools": []}, 400),
        ("chat", {"messages": [WHY], "tools": [{"type": "function", "function": ADD}]}, 200),
        ("generate", {"prompt": "Why is the sky blue?"}, 200),
        ("generate", {"prompt": "Why is the sky blue?", "format": "json"}, 200),
        ("generate", {"prompt": "Why is the sky blue?", "format": SCHEMA}, 200),
        ("generate", {"prompt": "Why", "logprobs": True, "top_logprobs": 2}, 200),
        ("generate", {"prompt": "What is in this image?", "images": ["iVBORw0KGgo="]}, 400),
        ("generate", {"prompt": "a sunset", "width": 1024, "height": 768, "steps": 20}, 400),
        ("generate", {}, 200),
    ],
)
def test_requests_of_the_clients_own_tests(
    address: str, path: str, body: dict[str, Any], status: int
) -> None:
    """Bodies that ollama-python's tests/test_client.py expects of its client (MIT)."""
    kinds = {"chat": ollama.ChatResponse, "generate": ollama.GenerateResponse}
    for stream in (False, True):
        given = {"model": "actor", "stream": stream, "options": SHORT, **body}
        answer = httpx.post(f"{address}/api/{path}", json=given)
        assert answer.status_code == status, answer.text
        for line in answer.text.splitlines():
            if status == 200:
                kinds[path].model_validate(json.loads(line), strict=True)


def test_the_store_is_not_asked_for_a_path(address: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", template=TEMPLATE)
    answer = httpx.post(f"{address}/api/generate", json={"model": str(folder), "keep_alive": 0})
    assert answer.status_code in (400, 404)
