"""The paths of this dialect."""

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from modelkit.answers.streams import GenerationStream
from modelkit.model import Model
from modelkit.server.ask import Ask
from modelkit.server.calling import call
from modelkit.server.conversation import with_wish
from modelkit.server.fields import Fields
from modelkit.server.http.own_headers import with_notes
from modelkit.server.openai.background import begun
from modelkit.server.openai.chat_request import read_chat
from modelkit.server.openai.chat_writer import ChatStream
from modelkit.server.openai.compaction import Compaction
from modelkit.server.openai.completion_request import read_completion
from modelkit.server.openai.completion_rows import Rows
from modelkit.server.openai.completion_writer import CompletionStream
from modelkit.server.openai.embeddings import embeddings
from modelkit.server.openai.model_choice import chat, client_names, counter, in_clients_words, model_of
from modelkit.server.openai.models import read_model, read_models, written_model, written_models
from modelkit.server.openai.response_request import ResponseRequest, read_response
from modelkit.server.openai.response_store import kept_of
from modelkit.server.openai.response_writer import ResponseStream
from modelkit.server.openai.sampling import seeds
from modelkit.server.openai.stored_routes import STORED_ROUTES, watched
from modelkit.server.replying import naming, read, reply
from modelkit.server.serving import apart, serving_of
from modelkit.server.streaming import SSE

PROGRESS_S = 0.5
"""How often a client that wants it is told how much of its prompt was read."""


async def chat_completions(request: Request) -> Response:
    most = serving_of(request).limits.rows
    asked, names = await read(request, lambda body: (read_chat(body, most), client_names(body)))

    def start(model: Model, row: int) -> GenerationStream:
        return chat(model, asked.messages, seeds(asked.options, row), asked.model, asked.notes)

    ask = Ask(
        model_of(request, asked.model),
        in_clients_words(start, names),
        asked.rows,
        asked.keep_alive,
        asked.priority,
    )
    writer = ChatStream(asked.model, asked.style, asked.rows)
    wire = replace(SSE, beat_s=PROGRESS_S, progress=writer.progress) if asked.style.progress else SSE
    return await reply(request, ask, writer, wire, streamed=asked.style.stream, ignored=asked.hints)


async def completions(request: Request) -> Response:
    most = serving_of(request).limits.rows
    asked, names = await read(request, lambda body: (read_completion(body, most), client_names(body)))
    rows = Rows(asked)

    def start(model: Model, row: int) -> GenerationStream:
        called = asked.prompt_of(row)
        return in_clients_words(rows.start, {**names, "ids": called, "prompt": called}, called)(model, row)

    name, scores = model_of(request, asked.model), asked.echo and asked.style.logprobs
    ask = Ask(name, start, asked.rows, asked.keep_alive, asked.priority, scores=scores)
    writer = CompletionStream(asked, rows.echo)
    wire = replace(SSE, beat_s=PROGRESS_S, progress=writer.progress) if asked.style.progress else SSE
    return await reply(request, ask, writer, wire, streamed=asked.style.stream, ignored=asked.hints)


async def responses(request: Request) -> Response:
    kept = kept_of(request)
    asked, names = await read(request, lambda body: (read_response(body, kept), client_names(body)))

    def start(model: Model, row: int) -> GenerationStream:
        return chat(model, asked.messages, asked.options, asked.model, asked.notes)

    ask = Ask(
        model_of(request, asked.model),
        in_clients_words(start, names, "input"),
        1,
        asked.keep_alive,
        asked.priority,
    )
    if asked.background:
        running = await begun(request, ask, asked, kept)
        response = watched(request, running) if asked.stream else JSONResponse(running.written())
        return naming(request, with_notes(response, running.notes), asked.hints + asked.dropped)
    writer = ResponseStream(asked, kept.keep if asked.store else None)
    return await reply(request, ask, writer, SSE, streamed=asked.stream, ignored=asked.hints + asked.dropped)


async def compact(request: Request) -> Response:
    """A summary of a conversation, made as a response to it is."""
    kept = kept_of(request)

    def reader(body: Fields) -> tuple[ResponseRequest, dict[str, str]]:
        body.refuse("stream", "a compaction is given whole")
        body.refuse("background", "a compaction is given on the connection that asked for it")
        return read_response(body, kept), client_names(body)

    asked, names = await read(request, reader)
    options = {**asked.options, "tool_choice": "none"} if "tools" in asked.options else asked.options

    def start(model: Model, row: int) -> GenerationStream:
        return chat(model, with_wish(asked.messages), options, asked.model)

    ask = Ask(
        model_of(request, asked.model),
        in_clients_words(start, names, "input"),
        1,
        asked.keep_alive,
        asked.priority,
    )
    hints = asked.hints + asked.dropped
    return await reply(request, ask, Compaction(asked, None), SSE, streamed=False, ignored=hints)


async def input_tokens(request: Request) -> Response:
    """What the prompt of a response would take, by the very way that answers it."""
    asked, names = await read(
        request, lambda body: (read_response(body, kept_of(request)), client_names(body))
    )
    count = await call(request, model_of(request, asked.model), counter(asked.messages, asked.options, names))
    said = JSONResponse({"object": "response.input_tokens", "input_tokens": count})
    return naming(request, said, asked.hints + asked.dropped)


async def models(request: Request) -> Response:
    listed = await apart(request, read_models, serving_of(request).settings)
    return JSONResponse(written_models(listed, _loaded(request)))


async def model(request: Request) -> Response:
    """Names may have slashes and colons. Where the path ends in its slash, all of them."""
    if not request.path_params["id"]:
        return await models(request)
    listed = await apart(request, read_model, serving_of(request).settings, request.path_params["id"])
    return JSONResponse(written_model(listed, _loaded(request)))


def _loaded(request: Request) -> dict[str, int]:
    """Contexts of loaded models by digest. Of one that is on its way none is known yet."""
    shown = serving_of(request).pool.shown()
    return {one.digest: one.context_tokens for one in shown if one.state == "ready"}


ROUTES = (
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/completions", completions, methods=["POST"]),
    Route("/v1/responses", responses, methods=["POST"]),
    Route("/v1/responses/compact", compact, methods=["POST"]),
    Route("/v1/responses/input_tokens", input_tokens, methods=["POST"]),
    *STORED_ROUTES,
    Route("/v1/embeddings", embeddings, methods=["POST"]),
    Route("/v1/models", models, methods=["GET"]),
    Route("/v1/models/{id:path}", model, methods=["GET"]),
)
