"""`/api/generate` and `/api/chat`: prompts and conversations that a model answers, or that only load it."""

from collections.abc import Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from modelkit.answers.streams import GenerationStream
from modelkit.chat.message import Message
from modelkit.errors import RequestError, Unplaced
from modelkit.model import Model
from modelkit.server.adapter_choice import split_adapters
from modelkit.server.ask import Ask, Start
from modelkit.server.calling import call
from modelkit.server.faults import Refused, refused
from modelkit.server.ollama.lines import Lines, Shape, empty, wire
from modelkit.server.ollama.reading import THINKING, Chat, Common, Generate, read_chat, read_generate
from modelkit.server.replying import read, reply
from modelkit.server.serving import apart, serving_of
from modelkit.store.store import Store


async def chat(request: Request) -> Response:
    asked = await read(request, read_chat)
    if not asked.messages:
        return await _loaded(request, "chat", asked.common)

    def start(model: Model, row: int) -> GenerationStream:
        return _noted(model, asked.common, start_chat(model, asked))

    return await _answered(request, "chat", asked.common, start, asked.common.ignored)


async def generate(request: Request) -> Response:
    asked = await read(request, read_generate)
    if not asked.prompt and not asked.suffix:
        return await _loaded(request, "generate", asked.common)
    ignored = list(asked.common.ignored)

    def start(model: Model, row: int) -> GenerationStream:
        if not _has_template(model, asked.common):
            ignored.extend(asked.thinking)
        return _noted(model, asked.common, start_generate(model, asked))

    return await _answered(request, "generate", asked.common, start, ignored, context=not asked.raw)


def start_chat(model: Model, asked: Chat) -> GenerationStream:
    if model.writes and not _has_template(model, asked.common):
        raise _unable(asked.common, "chat", "model")
    try:
        options = _options(model, asked.common, asked.keywords)
        return model.chat(asked.messages, stream=True, **options)
    except Unplaced as error:
        if error.part != "tools":
            raise
        raise _unable(asked.common, "tools", "tools") from error


def start_generate(model: Model, asked: Generate) -> GenerationStream:
    bare = asked.raw or not _has_template(model, asked.common)
    options = _options(model, asked.common, asked.common.keywords)
    if asked.suffix or bare or asked.earlier:
        for name in THINKING:
            options.pop(name, None)
    if asked.suffix:
        return model.generate(_gap(model, asked), stream=True, **options)
    if bare:
        if asked.system:
            raise _unable(asked.common, "system texts", "system")
        if not asked.earlier:
            return model.generate(asked.prompt, raw=True, stream=True, **options)
        return model.generate([*asked.earlier, *_unframed(model, asked.prompt)], stream=True, **options)
    system = [Message("system", asked.system)] if asked.system else []
    messages = [*system, Message("user", asked.prompt)]
    if not asked.earlier:
        return model.chat(messages, stream=True, **options)
    text = model.prompt(messages, template=options.pop("template", None))
    return model.generate([*asked.earlier, *_unframed(model, text)], stream=True, **options)


def _has_template(model: Model, common: Common) -> bool:
    return model.has_template or "template" in common.keywords


def _unable(common: Common, what: str, field: str) -> Refused:
    """As Ollama words it; clients look for these words."""
    return refused("invalid_request", f'"{common.model}" does not support {what}', field)


def _options(model: Model, common: Common, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords as they are for this model. Here it thinks where it can and nobody says otherwise."""
    options = {**keywords}
    if common.options.context is not None:
        options["context_length"] = common.options.context
    if "template" in common.keywords:  # which may be one that asks for no thinking
        return options
    asked, able = common.keywords.get("think"), model.thinking.on is not None
    if asked and not able:
        raise _unable(common, "thinking", "think")
    if asked is False and model.thinking.off is None:
        # It has no switch, as gpt-oss. Ollama passes over that, so clients send it to every model.
        del options["think"]
    if asked is None and able and "think" not in model.defaults:
        options["think"] = True
    return options


def _noted(model: Model, common: Common, stream: GenerationStream) -> GenerationStream:
    """Says where the context is not as long as it was asked to be: what is left out of a conversation for it
    would else be a riddle.
    """
    wanted, there = common.options.context, model.context_length
    if wanted is not None and wanted > there:
        stream.note(f"options.num_ctx is {wanted}; {common.model} was loaded with {there}, and that holds")
    return stream


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
    request: Request,
    shape: Shape,
    common: Common,
    start: Start,
    ignored: Iterable[str],
    *,
    context: bool = False,
) -> Response:
    """ignored: looked at once the answer has started."""
    ask = Ask(common.model, start, keep_alive=common.keep_alive)
    logprobs = "top_logprobs" in common.keywords
    writer = Lines(shape, common.model, logprobs=logprobs, context=context)
    lines = wire(shape, common.model)
    return await reply(request, ask, writer, lines, streamed=common.stream, ignored=ignored)


async def _loaded(request: Request, shape: Shape, common: Common) -> Response:
    """Nothing is asked: the model is to be in memory, or with keep_alive 0, to leave it."""
    if common.keep_alive == 0:
        name, adapters = split_adapters(common.model)
        if not serving_of(request).pool.stop(name, adapters=adapters):  # a name that there is not is told so
            await apart(request, _check_stored, request, name)
        return JSONResponse(empty(shape, common.model, "unload"))
    await call(request, common.model, lambda model: None, common.keep_alive)
    return JSONResponse(empty(shape, common.model, "load"))


def _check_stored(request: Request, name: str) -> None:
    """Raises ModelNotFound."""
    Store(serving_of(request).settings.home).digest(name)


ROUTES = (Route("/api/chat", chat, methods=["POST"]), Route("/api/generate", generate, methods=["POST"]))
