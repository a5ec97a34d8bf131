"""Conversations and prompts with everything that the Python API has: `POST /modelkit/v1/chat`, `/generate`.
`GET /modelkit/v1/defaults` says what their parameters are where nobody sets them.

The body holds `model`, `messages` (or `prompt`), `parameters` (an object of PARAMETERs) and, under their own
names, the keywords of `Model.chat` (or `generate`); `keep_alive` as everywhere. The answer is a line of JSON
for each event: see `lines`.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, get_type_hints

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from modelkit.answers.streams import GenerationStream
from modelkit.chat.message import Message, arguments_of, call_as_written
from modelkit.model import Model
from modelkit.modelfile import Parameters
from modelkit.modelfile.keywords import RequestParameters
from modelkit.requests.options import ChatOptions, GenerateOptions
from modelkit.server.ask import Ask, Start
from modelkit.server.dialect import Dialect
from modelkit.server.fields import Fields
from modelkit.server.http.body import read_json
from modelkit.server.own.lines import LINES, Lines, word
from modelkit.server.serving import trace_of
from modelkit.server.streaming import stream

_ID = re.compile(r"[0-9]{1,9}")
_PARAMETERS = frozenset(get_type_hints(RequestParameters))
_CHAT = frozenset(get_type_hints(ChatOptions)) - _PARAMETERS
_GENERATE = frozenset(get_type_hints(GenerateOptions)) - _PARAMETERS
_ALWAYS = frozenset({"model", "parameters", "keep_alive"})


def read_chat(body: Fields) -> Ask:
    """What the body asks for. Raises Refused for a field that nobody knows; what the fields hold is checked
    where the answer starts.
    """
    options, messages = _options(body, _CHAT, "messages"), body.items("messages")

    def start(model: Model, row: int) -> GenerationStream:
        read = (_as_written(one, f"messages[{place}]") for place, one in enumerate(messages))
        return model.chat(list(read), stream=True, **options)

    return _ask(body, start)


def read_generate(body: Fields) -> Ask:
    """As `read_chat`, for one prompt: a text, or token ids."""
    options, prompt = _options(body, _GENERATE, "prompt"), body.raw("prompt")

    def start(model: Model, row: int) -> GenerationStream:
        return model.generate(prompt, stream=True, **options)

    return _ask(body, start)


def _ask(body: Fields, start: Start) -> Ask:
    keep_alive = body.duration("keep_alive")
    return Ask(body.needed_text("model"), start, keep_alive=keep_alive)


def _options(body: Fields, known: frozenset[str], what: str) -> dict[str, Any]:
    """Keywords of the call, its parameters among them."""
    every = known | _ALWAYS | {what}
    if unknown := sorted(body.unknown(every)):
        raise body.wrong(unknown[0], f"no such field; there are {', '.join(sorted(every))}")
    options: dict[str, Any] = {name: body.raw(name) for name in known if body.has(name)}
    if "logit_bias" in options:
        options["logit_bias"] = _by_id(options["logit_bias"])
    given = body.fields("parameters")
    if given is None:
        return options
    parameters = {name: given.raw(name) for name in given.peek if given.has(name)}
    if unknown := sorted(parameters.keys() - _PARAMETERS):
        raise given.wrong(unknown[0], f"no such parameter; there are {', '.join(sorted(_PARAMETERS))}")
    return options | parameters


def _as_written(message: Any, where: str) -> Any:
    """A message as it is; but one whose calls have arguments that are no JSON object, or that no prompt can
    hold, with these as they were written: an answer that went wrong would else end the conversation for good.
    """
    given = message.get("tool_calls") if isinstance(message, Mapping) else None
    broken = [_broken(call) for call in given] if isinstance(given, list) else []
    if not any(broken):
        return message
    calls = [_without(call) if text else call for call, text in zip(given or (), broken, strict=True)]
    read = Message.read({**message, "tool_calls": calls}, where)
    pairs = zip(read.tool_calls, broken, strict=True)
    kept = tuple(call_as_written(one.name, text, one.id) if text else one for one, text in pairs)
    return replace(read, tool_calls=kept)


def _broken(call: Any) -> str:
    """The arguments of a call where they are a text and none that is to be had as an object; else ""."""
    function = call.get("function") if isinstance(call, Mapping) else None
    text = function.get("arguments") if isinstance(function, Mapping) else None
    return text if isinstance(text, str) and text.strip() and arguments_of(text) is None else ""


def _without(call: Mapping[str, Any]) -> dict[str, Any]:
    return {**call, "function": {**call["function"], "arguments": {}}}


def _by_id(biases: Any) -> Any:
    """JSON has no keys but texts; what is not an id is refused where the answer starts."""
    if not isinstance(biases, Mapping):
        return biases
    return {int(key) if _ID.fullmatch(key) else key: value for key, value in biases.items()}


async def chat(request: Request) -> Response:
    """The answer, event by event."""
    return await stream(request, read_chat(await read_json(request)), LINES, Lines(trace_of(request).id))


async def generate(request: Request) -> Response:
    """The answer to one prompt, event by event."""
    return await stream(request, read_generate(await read_json(request)), LINES, Lines(trace_of(request).id))


async def defaults(request: Request) -> Response:
    """What each parameter of a request is, where neither it nor the package says anything."""
    resolved = asdict(Parameters().resolved())
    return JSONResponse({name: resolved[name] for name in sorted(_PARAMETERS)})


DIALECT = Dialect(
    "modelkit",
    (
        Route("/modelkit/v1/chat", chat, methods=["POST"]),
        Route("/modelkit/v1/generate", generate, methods=["POST"]),
        Route("/modelkit/v1/defaults", defaults),
    ),
    ("/modelkit",),
    word,
)
