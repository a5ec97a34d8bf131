"""Every field that the official clients know acts, is refused by its name, or is named as one that changed
nothing: the clients' own types say which there are.
"""

import asyncio
import io
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import httpx
import ollama._types as ollama_types  # pyright: ignore[reportMissingTypeStubs]
import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from openai.types import completion_create_params as completions
from openai.types import embedding_create_params as embeddings
from openai.types.chat import completion_create_params as chat
from openai.types.responses import input_token_count_params, response_compact_params
from openai.types.responses import response_create_params as responses
from pydantic import BaseModel

import modelkit
from modelkit.server.app import make_app
from modelkit.server.http.own_headers import IGNORED
from modelkit.server.log import Log
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from tests.modelkit.server.test_every_field import TEMPLATE
from tests.support.tiny import write_model

HI = [{"role": "user", "content": "hi"}]
LOOK = {"name": "look", "parameters": {"type": "object", "properties": {"a": {"enum": ["x"]}}}}
ROUTES: dict[str, tuple[Any, dict[str, Any]]] = {
    "/v1/chat/completions": (chat.CompletionCreateParamsNonStreaming, {"messages": HI, "max_tokens": 2}),
    "/v1/completions": (completions.CompletionCreateParamsNonStreaming, {"prompt": "hi", "max_tokens": 2}),
    "/v1/responses": (responses.ResponseCreateParamsNonStreaming, {"input": "hi", "max_output_tokens": 2}),
    "/v1/responses/input_tokens": (input_token_count_params.InputTokenCountParams, {"input": "hi"}),
    "/v1/responses/compact": (response_compact_params.ResponseCompactParams, {"input": "hi", "regex": "x"}),
    "/v1/embeddings": (embeddings.EmbeddingCreateParams, {"input": "hi"}),
    "/v1/messages": (
        message_create_params.MessageCreateParamsNonStreaming,
        {"messages": HI, "max_tokens": 2},
    ),
    "/v1/messages/count_tokens": (message_count_tokens_params.MessageCountTokensParams, {"messages": HI}),
    "/api/chat": (ollama_types.ChatRequest, {"messages": HI, "stream": False}),
    "/api/generate": (ollama_types.GenerateRequest, {"prompt": "hi", "stream": False}),
    "/api/embed": (ollama_types.EmbedRequest, {"input": "hi"}),
    "/api/embeddings": (ollama_types.EmbeddingsRequest, {"prompt": "hi"}),
}


def fields_of(record: Any) -> dict[str, Any]:
    if isinstance(record, type) and issubclass(record, BaseModel):
        return {name: one.annotation for name, one in record.model_fields.items()}
    return typing.get_type_hints(record)


def samples(kind: Any, depth: int = 0) -> Iterator[Any]:
    """Values of a type: one for each of its choices."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in (bool, int, float, str):
        yield {bool: True, int: 1, float: 0.5, str: "x"}[kind]
    elif origin is Literal:
        yield from inner
    elif hasattr(kind, "__required_keys__") or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        if depth < 4:
            named = fields_of(kind)
            must = getattr(kind, "__required_keys__", frozenset())
            least = {name: next(samples(named[name], depth + 1), "x") for name in must}
            yield least
            for name in named.keys() - must:
                for value in [*samples(named[name], depth + 1)][:3]:
                    yield {**least, name: value}
    elif getattr(origin, "__name__", "") in ("list", "Sequence", "Iterable", "SequenceNotStr"):
        yield from ([value] for value in samples(inner[0], depth + 1))
    elif getattr(origin, "__name__", "") in ("dict", "Mapping", "Dict"):
        yield {"x": "x"}
    elif inner:
        for one in inner:
            yield from samples(one, depth)


def paths(value: Any, under: str) -> Iterator[str]:
    yield under
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from paths(inner, f"{under}.{key}")
    if isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{under}[]")


DRAWN = "frequency_penalty presence_penalty seed stop stop[] temperature top_p"
MADE = f"{DRAWN} n max_tokens logprobs stream_options"
CHOSEN = "tool_choice tool_choice.type"
OPTIONS = "num_predict num_keep repeat_last_n repeat_penalty top_k typical_p"
ASKED = " ".join(f"options.{name}" for name in f"{DRAWN} {OPTIONS}".split() if name != "n")
LOCAL = f"{ASKED} options format format.x keep_alive logprobs"
CLAUDE = (
    f"{CHOSEN} tool_choice.disable_parallel_tool_use tools tools[] tools[].name thinking thinking.type "
    "system system[] system[].type output_config output_config.format output_config.format.schema "
    "output_config.format.schema.x"
)
TOOLS = f"{CHOSEN} tools tools[] tools[].type tools[].function tools[].function.name"
RESPONSE = (
    f"{TOOLS} input input[] input[].role instructions parallel_tool_calls truncation reasoning text "
    "text.format text.format.type reasoning.effort reasoning.generate_summary reasoning.summary"
)
ACTS = {
    "/v1/chat/completions": f"{MADE} {TOOLS} max_completion_tokens modalities modalities[] service_tier "
    "reasoning_effort response_format response_format.type response_format.json_schema "
    "messages messages[] messages[].role",
    "/v1/completions": f"{MADE} best_of echo prompt prompt[] prompt[][]",
    "/v1/responses": f"{DRAWN} {RESPONSE} background include include[] max_output_tokens service_tier store",
    "/v1/responses/input_tokens": RESPONSE,
    "/v1/responses/compact": "input input[] input[].role instructions service_tier",
    "/v1/embeddings": "dimensions encoding_format input input[] input[][]",
    "/v1/messages": f"{CLAUDE} max_tokens stop_sequences stop_sequences[]",
    "/v1/messages/count_tokens": CLAUDE,
    "/api/chat": f"{LOCAL} {TOOLS}",
    "/api/generate": f"{LOCAL} context context[] prompt raw system",
    "/api/embed": "dimensions input input[] keep_alive options truncate",
    "/api/embeddings": "keep_alive options prompt",
}
"""What acts, so nothing has to be said of it."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    home = tmp_path_factory.mktemp("home")
    folder = write_model(tmp_path_factory.mktemp("tiny"), template=TEMPLATE, max_position_embeddings=2048)
    pool = Pool(lambda name: modelkit.load(folder, home=home, num_predict=2))
    settings = Settings.from_environment({"MODELKIT_HOME": str(home)})
    yield make_app(Serving(pool, settings, log=Log(io.StringIO())))
    asyncio.run(pool.close())


async def passed_over(app: Any, route: str, most: int) -> set[str]:
    """The fields that were taken without a word and do not act."""
    record, body = ROUTES[route]
    silent = set[str]()
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        for field, kind in fields_of(record).items():
            for value in [*samples(kind)][:most] if field not in ("model", "stream") else ():
                said = await client.post(route, json={"model": "tiny", **body, field: value})
                assert said.status_code in (200, 400, 404), (field, value, said.text)
                if said.status_code != 200:
                    assert "is not known here" not in said.text, said.text
                    assert field in said.text or "num_ctx" in said.text or "insert" in said.text, said.text
                    continue
                if value in ({}, [{}]):  # asks for nothing
                    continue
                named = said.headers.get(IGNORED, "").split(", ")
                silent |= {
                    one for one in paths(value, field) if not one.startswith(tuple(filter(None, named)))
                }
    return silent - set(ACTS[route].split())


@pytest.mark.parametrize("route", ROUTES)
def test_fields_of_the_official_clients_act_or_are_spoken_of(app: Any, route: str) -> None:
    assert asyncio.run(passed_over(app, route, 60)) == set()


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
def test_all_their_values_do(app: Any, route: str) -> None:
    assert asyncio.run(passed_over(app, route, 400)) == set()


NOTED: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/chat/completions", {"messages": HI, "max_tokens": 2, "max_completion_tokens": 2}, "max_tokens"),
    ("/v1/chat/completions", {"messages": [{**HI[0], "name": "me"}], "max_tokens": 2}, "messages[].name"),
    (
        "/v1/responses",
        {"input": "hi", "text": {"verbosity": "low"}, "max_output_tokens": 2},
        "text.verbosity",
    ),
    (
        "/v1/messages",
        {"messages": HI, "max_tokens": 2, "output_config": {"effort": "low"}},
        "output_config.effort",
    ),
    ("/api/chat", {"messages": [{**HI[0], "colour": 1}], "stream": False}, "messages[].colour"),
    ("/api/generate", {"prompt": "hi", "stream": False, "top_logprobs": 2}, "top_logprobs"),
]


@pytest.mark.parametrize(("route", "body", "field"), NOTED, ids=[one[2] for one in NOTED])
def test_what_nobody_reads_is_named_wherever_it_stands(
    app: Any, route: str, body: dict[str, Any], field: str
) -> None:
    said = asyncio.run(posted(app, route, body))
    assert said.status_code == 200
    assert said.headers[IGNORED].split(", ") == [field]


async def posted(app: Any, route: str, body: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        return await client.post(route, json={"model": "tiny", **body})


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/chat/completions", {"messages": HI, "max_tokens": 2, "reasoning_effort": "high"}),
        ("/v1/messages", {"messages": HI, "max_tokens": 2, "thinking": {"type": "adaptive"}}),
    ],
)
def test_an_effort_that_no_model_makes_is_noted(app: Any, route: str, body: dict[str, Any]) -> None:
    assert "does not think" in asyncio.run(posted(app, route, body)).headers["x-modelkit-notes"]
