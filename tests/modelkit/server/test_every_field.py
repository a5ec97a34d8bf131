"""Every field of every route, with values that no client should send: an answer, or an error that says which
field it is about. Never an error of the server's own, and nothing that hangs.
"""

import asyncio
import io
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

import modelkit
from modelkit.server.app import make_app
from modelkit.server.http.own_headers import IGNORED
from modelkit.server.log import Log
from modelkit.server.models.pool import Pool
from modelkit.server.openai import chat_request, completion_request, response_request, thinking
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.support.tiny import write_model

TEMPLATE = (
    "{% if brief %}<brief>{% endif %}"
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def nested(levels: int) -> Any:
    return {"type": "object", **({"properties": {"x": nested(levels - 1)}} if levels else {})}


VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2,
    0.5,
    1e300,
    -1e300,
    2**63,
    -(2**63) - 1,
    10**400,
    "",
    "x",
    "\x00\u202e\ud7ff",
    "x" * 20_000,
    [],
    [None],
    [[]],
    [{}],
    ["x", 5],
    [0] * 3000,
    {},
    {"type": "x"},
    {"x": {"y": [1, 2]}},
    {"": None, "1": 1e300},
    nested(40),
)
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
FUNCTION: dict[str, Any] = {"name": "look", "description": "looks", "parameters": SCHEMA, "strict": True}
TURNS: list[dict[str, Any]] = [
    {"role": "system", "content": "be short"},
    {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "me"},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "so",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": "x"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "seen"},
    {"role": "user", "content": "so?"},
]
OLLAMA_TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": "hi", "images": []},
    {
        "role": "assistant",
        "content": "",
        "thinking": "so",
        "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": {"a": "x"}, "index": 0}}],
    },
    {"role": "tool", "tool_name": "look", "tool_call_id": "c1", "content": "seen"},
]
SAMPLED: dict[str, Any] = {"seed": 1, "temperature": 0.5, "top_p": 0.9, "stop": ["zz"]}
OPENAI: dict[str, Any] = {"max_tokens": 2, "stream": False, **SAMPLED}
OLLAMA: dict[str, Any] = {
    "stream": False,
    "keep_alive": "5m",
    "think": None,
    "logprobs": True,
    "top_logprobs": 1,
    "options": {"num_predict": 2, "num_ctx": 512, "top_k": 5, **SAMPLED},
}
BLOCK = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
ANTHROPIC: dict[str, Any] = {
    "max_tokens": 2,
    "system": [BLOCK],
    "messages": [
        {"role": "user", "content": [BLOCK]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "so", "signature": "x"},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [BLOCK], "is_error": False}
            ],
        },
    ],
    "stop_sequences": ["zz"],
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "seed": 1,
    "thinking": {"type": "disabled", "budget_tokens": None, "display": None},
    "tools": [{"name": "look", "description": "looks", "input_schema": SCHEMA, "type": "custom"}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "output_config": {"effort": "low", "format": None},
    "metadata": {"user_id": "me"},
    "keep_alive": 60,
    "stream": False,
}
OWN: dict[str, Any] = {"parameters": {"num_predict": 2, "top_k": 5, **SAMPLED}, "keep_alive": "5m"}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        **OPENAI,
        "messages": TURNS,
        "n": 1,
        "logprobs": True,
        "top_logprobs": 1,
        "logit_bias": {"5": 1},
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "response_format": {"type": "text"},
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"brief": True},
        "reasoning_effort": None,
    },
    "/v1/chat/completions?form": {
        **OPENAI,
        "messages": [{"role": "user", "content": "hi"}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "strict": True, "schema": SCHEMA},
        },
    },
    "/v1/completions": {
        **OPENAI,
        "prompt": ["a", [5, 6]],
        "suffix": None,
        "echo": True,
        "n": 1,
        "logprobs": 1,
        "logit_bias": {"5": 1},
    },
    "/v1/responses": {
        "max_output_tokens": 2,
        "seed": 1,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a": "x"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "seen"},
        ],
        "instructions": "be short",
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": "auto",
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "reasoning": {"effort": None, "summary": None},
        "include": ["message.output_text.logprobs"],
        "store": False,
        "truncation": "auto",
        "metadata": {"a": "b"},
    },
    "/v1/responses/input_tokens": {
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "instructions": "be short",
        "tools": [{"type": "function", **FUNCTION}],
    },
    "/api/chat": {
        **OLLAMA,
        "messages": OLLAMA_TURNS,
        "tools": [{"type": "function", "function": FUNCTION}],
        "truncate": True,
        "shift": False,
    },
    "/api/generate": {
        **OLLAMA,
        "prompt": "hi",
        "system": "be short",
        "suffix": "",
        "template": "",
        "raw": False,
        "context": [5, 6],
        "images": [],
        "format": SCHEMA,
    },
    "/v1/messages": ANTHROPIC,
    "/v1/messages/count_tokens": ANTHROPIC,
    "/modelkit/v1/chat": {
        **OWN,
        "messages": TURNS,
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "auto",
        "top_logprobs": 1,
        "logit_bias": {"5": 1},
        "variables": {"brief": True},
    },
    "/modelkit/v1/generate": {**OWN, "prompt": "hi", "raw": False, "format": SCHEMA},
    "/modelkit/v1/load": {"keep_alive": "5m"},
    "/modelkit/v1/prefixes": {},
    "/modelkit/v1/decode": {"ids": [5, 6]},
    "/tokenize": {"content": "hi", "add_special": True, "parse_special": True, "with_pieces": True},
    "/detokenize": {"tokens": [5, 6]},
    "/apply-template": {"messages": TURNS, "tools": [{"type": "function", "function": FUNCTION}]},
}
"""A request that is answered, with what each route has: fields are changed one at a time."""
MORE = {
    "/v1/chat/completions": chat_request.KNOWN,
    "/v1/completions": completion_request.KNOWN,
    "/v1/responses": response_request.KNOWN,
    "/apply-template": thinking.FIELDS,
}
"""Fields that are read besides."""
FORM = {"format", "regex", "grammar"}
BAD_FORM: Any = {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}
THINK = {"think"}
OUR_WORDS: dict[str, set[str]] = {
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar", "ebnf"), FORM),
    **dict.fromkeys(("json_schema", "structured_outputs", "text"), FORM),
    "enable_thinking": THINK,
    "thinking": THINK,
    "suffix": {"insert"},
    "reasoning_budget": THINK,
    "adapters": {"no adapter"},
    "chat_template_kwargs": {"chat template has no variable"},
    "continue_final_message": {"assistant message to continue"},
}
"""What a message calls a field where the model refuses it, whoever asked."""
TOO_LONG = {"too long", "context length", "the context is", "more than the context", "levels deep"}
Path = tuple[str | int, ...]
UNCHANGED: Path = ()


class Asked:
    """The server, without a socket, and its log."""

    def __init__(self, app: ASGIApp, written: io.StringIO) -> None:
        self._app, self._written = app, written

    def all(self, requests: list[tuple[str, Path, dict[str, Any]]]) -> list[str]:
        """What is wrong, a line each."""
        bad = asyncio.run(self._all(requests))
        return [*bad, *(line for line in self._written.getvalue().splitlines() if " failure " in line)]

    async def _all(self, requests: list[tuple[str, Path, dict[str, Any]]]) -> list[str]:
        transport = httpx.ASGITransport(self._app)
        places = asyncio.Semaphore(8)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=None
        ) as client:

            async def one(route: str, path: Path, body: dict[str, Any]) -> str | None:
                async with places, asyncio.timeout(300):
                    data = json.dumps(body).encode()
                    headers = {"content-type": "application/json"}
                    said = await client.post(route.partition("?")[0], content=data, headers=headers)
                return self._wrong(route, path, body, said)

            return [bad for bad in await asyncio.gather(*(one(*request) for request in requests)) if bad]

    def _wrong(self, route: str, path: Path, body: dict[str, Any], said: httpx.Response) -> str | None:
        value: Any = body
        for step in path:
            value = value[step] if step in value or isinstance(step, int) else None
        where = f"{route} {'.'.join(map(str, path))} = {json.dumps(value)[:60]}: {said.status_code} "
        text = said.text
        if said.status_code >= 500 or "the server failed" in text:
            return f"{where}{text[:300]}"
        if said.status_code == 200:
            return None
        if path == UNCHANGED:
            return f"{where}{text[:300]}"
        names = {str(step).lower() for step in path if isinstance(step, str)}
        if not any(name in text.lower() for name in names | OUR_WORDS.get(str(path[0]), set()) | TOO_LONG):
            return f"{where}names no field: {text[:300]}"
        return None

    async def answer(self, route: str, body: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post(route.partition("?")[0], json=body)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    home, written = tmp_path_factory.mktemp("home"), io.StringIO()
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE, max_position_embeddings=2048)
    pool = Pool(lambda name: modelkit.load(folder, home=home, num_predict=2))
    serving = Serving(pool, Settings.from_environment({"MODELKIT_HOME": str(home)}), log=Log(written))
    yield Asked(make_app(serving), written)
    asyncio.run(pool.close())


def places(value: Any, under: Path = ()) -> Iterator[Path]:
    """Of every field, and of what is in it."""
    steps: Any = value.items() if isinstance(value, Mapping) else ()
    if isinstance(value, list):
        steps = enumerate(value)
    for step, inner in steps:
        yield (*under, step)
        yield from places(inner, (*under, step))


def put(value: Any, path: Path, new: Any) -> Any:
    """The value with something else in this place."""
    step, *rest = path
    changed: Any = dict(value) if isinstance(value, Mapping) else list(value)
    changed[step] = put(changed[step], tuple(rest), new) if rest else new
    return changed


def requests() -> Iterator[tuple[str, Path, dict[str, Any]]]:
    for route, sample in ROUTES.items():
        body = {"model": "tiny", **sample}
        every = [*places(body), *((name,) for name in sorted(MORE.get(route, frozenset()) - body.keys()))]
        for path in every:
            for value in VALUES:
                yield route, path, put(body, path, value)


def test_samples_are_answered(asked: Asked) -> None:
    """What is changed below is sound before."""
    assert not asked.all([(route, UNCHANGED, {"model": "tiny", **body}) for route, body in ROUTES.items()])


NOTHING: dict[str, Any] = {"no_value": None, "no_text": "", "no_list": [], "no_object": {}}


@pytest.mark.parametrize("value", [{"a": 1}, False])
@pytest.mark.parametrize("route", ROUTES)
def test_an_unknown_field_is_named_or_refused(asked: Asked, route: str, value: object) -> None:
    """One that is empty is not: clients fill in all that they have."""
    body = {**NOTHING, "model": "tiny", **ROUTES[route], "surely_unknown": value}
    said = asyncio.run(asked.answer(route, body))
    named = said.headers.get(IGNORED, "") if said.status_code == 200 else said.text
    assert said.status_code in (200, 400)
    assert "surely_unknown" in named, (said.status_code, named)
    assert not any(name in named for name in NOTHING)


def test_some_fields(asked: Asked) -> None:
    every = list(requests())
    assert not asked.all(random.Random(0).sample(every, 250))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_fields(asked: Asked) -> None:
    assert not asked.all(list(requests()))


@pytest.mark.parametrize(
    ("route", "changed", "param"),
    [
        ("/v1/chat/completions", {"response_format": BAD_FORM}, "response_format"),
        ("/v1/chat/completions", {"logit_bias": {"5000": 1}}, "logit_bias"),
        ("/v1/chat/completions", {"chat_template_kwargs": {"colour": 1}}, "chat_template_kwargs"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 5000}]}, "messages"),
        ("/v1/completions", {"prompt": "x" * 5000}, "prompt"),
        ("/v1/completions", {"prompt": [5, 5000], "echo": False}, "prompt"),
        ("/v1/responses", {"input": "x" * 5000}, "input"),
        ("/v1/embeddings", {"input": ["a", "x" * 5000]}, "input[1]"),
        ("/v1/embeddings", {"input": [[5, 5000]]}, "input"),
        ("/v1/embeddings", {"input": "a", "dimensions": 5000}, "dimensions"),
        ("/v1/embeddings", {"input": "a", "prompt_name": "query"}, "prompt_name"),
    ],
)
def test_what_the_model_refuses_is_told_by_the_clients_field(
    asked: Asked, route: str, changed: dict[str, Any], param: str
) -> None:
    said = asyncio.run(asked.answer(route, {"model": "tiny", **ROUTES.get(route, {}), **changed}))
    assert said.status_code == 400
    assert said.json()["error"]["param"] == param
    assert param in said.json()["error"]["message"] or param in ("prompt", "input", "messages")
