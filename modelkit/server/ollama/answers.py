"""`/api/generate` and `/api/chat`: prompts and conversations that a model answers, or that only load it."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from modelkit.chat.message import Message
from modelkit.errors import RequestError
from modelkit.generation import GenerationStream
from modelkit.model import Model
from modelkit.server.answering import Ask, call
from modelkit.server.faults import Refused, refused
from modelkit.server.ollama.lines import Lines, Shape, empty
from modelkit.server.ollama.reading import Chat, Common, Generate, read_chat, read_generate
from modelkit.server.replying import read, reply
from modelkit.server.serving import serving_of
from modelkit.server.streaming import NDJSON
from modelkit.store.store import Store


async def chat(request: Request) -> Response:
    asked = await read(request, read_chat)
    if not asked.messages:
        return await _loaded(request, "chat", asked.common)

    def start(model: Model, row: int) -> GenerationStream:
        return start_chat(model, asked)

    return await _answered(request, "chat", asked.common, start)


async def generate(request: Request) -> Response:
    asked = await read(request, read_generate)
    if not asked.prompt and not asked.suffix:
        return await _loaded(request, "generate", asked.common)

    def start(model: Model, row: int) -> GenerationStream:
        return start_generate(model, asked)

    return await _answered(request, "generate", asked.common, start, context=not asked.raw)


def start_chat(model: Model, asked: Chat) -> GenerationStream:
    if not model.has_template:
        raise _unable(asked.common, "chat", "model")
    _check_thinking(model, asked.common)
    return model.chat(asked.messages, stream=True, **_options(asked.common), **asked.keywords)


def start_generate(model: Model, asked: Generate) -> GenerationStream:
    options: dict[str, Any] = {**_options(asked.common), **asked.common.keywords}
    _check_thinking(model, asked.common)
    if asked.suffix or asked.raw or asked.earlier or not model.has_template:
        options.pop("think", None)  # it is the template that asks for it
    if asked.suffix:
        return model.generate(_gap(model, asked), stream=True, **options)
    if asked.raw or not model.has_template:
        if asked.system:
            raise _unable(asked.common, "system texts", "system")
        if not asked.earlier:
            return model.generate(asked.prompt, raw=True, stream=True, **options)
        return model.generate([*asked.earlier, *_unframed(model, asked.prompt)], stream=True, **options)
    system = [Message("system", asked.system)] if asked.system else []
    messages = [*system, Message("user", asked.prompt)]
    if not asked.earlier:
        return model.chat(messages, stream=True, **options)
    text = model.prompt(messages)
    return model.generate([*asked.earlier, *_unframed(model, text)], stream=True, **options)


def _check_thinking(model: Model, common: Common) -> None:
    if common.keywords.get("think") and model.thinking.on is None:
        raise _unable(common, "thinking", "think")


def _unable(common: Common, what: str, field: str) -> Refused:
    """As Ollama words it; clients look for these words."""
    return refused("invalid_request", f'"{common.model}" does not support {what}', field)


def _options(common: Common) -> dict[str, Any]:
    context = common.options.context
    return {} if context is None else {"context_length": context}


def _gap(model: Model, asked: Generate) -> list[int]:
    try:
        return model.infill(asked.prompt, asked.suffix)
    except RequestError as error:
        raise _unable(asked.common, "insert", "suffix") from error


def _unframed(model: Model, text: str) -> list[int]:
    """What follows earlier ids has no beginning of its own."""
    frame, ids = model.encode(""), model.encode(text, add_special=False)
    return ids[len(frame) :] if frame and ids[: len(frame)] == frame else ids


async def _answered(
    request: Request, shape: Shape, common: Common, start: Any, *, context: bool = False
) -> Response:
    ask = Ask(common.model, start, keep_alive=common.keep_alive)
    logprobs = "top_logprobs" in common.keywords
    writer = Lines(shape, common.model, logprobs=logprobs, context=context)
    ignored = common.options.ignored
    return await reply(request, ask, writer, NDJSON, streamed=common.stream, ignored=ignored)


async def _loaded(request: Request, shape: Shape, common: Common) -> Response:
    """Nothing is asked: the model is to be in memory, or with keep_alive 0, to leave it."""
    if common.keep_alive == 0:
        pool, workers = serving_of(request).pool, serving_of(request).workers
        if not pool.stop(common.model):  # a name that there is not is told so
            await asyncio.get_running_loop().run_in_executor(workers, _check_stored, request, common.model)
        return JSONResponse(empty(shape, common.model, "unload"))
    await call(request, common.model, lambda model: None, common.keep_alive)
    return JSONResponse(empty(shape, common.model, "load"))


def _check_stored(request: Request, name: str) -> None:
    """Raises ModelNotFound."""
    Store(serving_of(request).settings.home).digest(name)


ROUTES = (Route("/api/chat", chat, methods=["POST"]), Route("/api/generate", generate, methods=["POST"]))
