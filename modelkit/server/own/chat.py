"""A conversation with everything that the Python API has: `POST /modelkit/v1/chat`.
`GET /modelkit/v1/defaults` says what its parameters are where nobody sets them.

The body holds `model`, `messages`, `parameters` (an object of PARAMETERs) and, under their own names, the
keywords of `Model.chat`; `keep_alive` as everywhere. The answer is a line of JSON for each event: see
`lines`.
"""

from dataclasses import asdict
from typing import Any, get_type_hints

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from modelkit import arguments
from modelkit.durations import read_keep_alive
from modelkit.generation import GenerationStream
from modelkit.model import Model
from modelkit.modelfile import Parameters
from modelkit.modelfile.keywords import RequestParameters
from modelkit.options import ChatOptions
from modelkit.server.answering import Ask
from modelkit.server.body import read_json
from modelkit.server.dialect import Dialect
from modelkit.server.fields import Fields
from modelkit.server.own.lines import LINES, Lines
from modelkit.server.streaming import stream

_PARAMETERS = frozenset(get_type_hints(RequestParameters))
_OPTIONS = frozenset(get_type_hints(ChatOptions)) - _PARAMETERS
_KNOWN = _OPTIONS | {"model", "messages", "parameters", "keep_alive"}


def read_ask(body: Fields) -> Ask:
    """What the body asks for. Raises Refused for a field that nobody knows; what the fields hold is checked
    where the answer starts.
    """
    if unknown := sorted(body.value.keys() - _KNOWN):
        raise body.wrong(unknown[0], f"no such field; there are {', '.join(sorted(_KNOWN))}")
    messages = body.items("messages")
    options: dict[str, Any] = {name: body.raw(name) for name in _OPTIONS if body.has(name)}
    given = body.fields("parameters")
    parameters = {} if given is None else {name: given.raw(name) for name in given.value if given.has(name)}
    if given is not None and (unknown := sorted(parameters.keys() - _PARAMETERS)):
        raise given.wrong(unknown[0], f"no such parameter; there are {', '.join(sorted(_PARAMETERS))}")

    def start(model: Model, row: int) -> GenerationStream:
        return model.chat(messages, stream=True, **options, **parameters)

    keep_alive = arguments.given(read_keep_alive, body.raw("keep_alive"), "keep_alive")
    return Ask(body.needed_text("model"), start, keep_alive=keep_alive)


async def chat(request: Request) -> Response:
    """The answer, event by event."""
    return await stream(request, read_ask(await read_json(request)), LINES, Lines())


async def defaults(request: Request) -> Response:
    """What each parameter of a request is, where neither it nor the package says anything."""
    resolved = asdict(Parameters().resolved())
    return JSONResponse({name: resolved[name] for name in sorted(_PARAMETERS)})


DIALECT = Dialect(
    "modelkit",
    (
        Route("/modelkit/v1/chat", chat, methods=["POST"]),
        Route("/modelkit/v1/defaults", defaults),
    ),
    ("/modelkit",),
)
