"""Prompts in words and tokens, and what a model is loaded with, in llama.cpp's shapes: `/tokenize`,
`/detokenize`, `/apply-template`, `/props`.

`model` says which; where one alone is loaded, it may be left out.
"""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from modelkit.chat.message import Message
from modelkit.errors import ModelkitError
from modelkit.model import Model
from modelkit.server.calling import call
from modelkit.server.dialect import Dialect
from modelkit.server.faults import renamed
from modelkit.server.fields import Fields, wrong
from modelkit.server.http.body import read_json
from modelkit.server.http.own_headers import with_ignored
from modelkit.server.http.writing import json_response
from modelkit.server.openai import thinking
from modelkit.server.openai.messages import goes_on, read_messages
from modelkit.server.openai.model_choice import able, client_names, model_of
from modelkit.server.openai.tools import chosen, read_tools
from modelkit.server.replying import naming, read
from runtime.records import dataclass

_MOST_IDS = 2_000_000
_CONVERSATION = thinking.FIELDS | {
    "model",
    "messages",
    "tools",
    "continue_final_message",
    "add_generation_prompt",
}
_TOKENIZE = frozenset({"model", "content", "add_special", "parse_special", "with_pieces"})


async def tokenize(request: Request) -> Response:
    """{"content"} to {"tokens": [ids]}, or with `with_pieces` to [{"id", "piece"}]."""
    body = await read_json(request)
    text, special = body.text("content"), body.flag("add_special", default=False)
    if text is None:  # no tokens at all would be the answer to a text under another name
        raise body.wrong("content", "a text")
    if body.flag("parse_special") is False:
        raise body.wrong("parse_special", "true: special tokens are always told from plain text")
    pieces = body.flag("with_pieces", default=False)

    def made(model: Model) -> dict[str, Any]:
        ids = model.encode(text, add_special=special)
        return {"tokens": [_piece(model, one) for one in ids] if pieces else ids}

    said = await call(request, model_of(request, body.text("model", ""), "any"), made)
    return with_ignored(await json_response(request, said), body.unknown(_TOKENIZE))


async def detokenize(request: Request) -> Response:
    """{"tokens"} to {"content"}, special tokens included."""

    def reader(body: Fields) -> tuple[str, list[int], tuple[str, ...]]:
        if not body.has("tokens"):
            raise body.wrong("tokens", "a list of token ids")
        ids = body.items("tokens", _MOST_IDS)
        for place, one in enumerate(ids):
            if type(one) is not int or not 0 <= one < 2**31:
                raise wrong(f"tokens[{place}]", one, "a token id")
        return body.text("model", ""), ids, body.unknown({"model", "tokens"})

    said, ids, unknown = await read(request, reader)
    name = model_of(request, said, "any")
    made = await call(request, name, lambda model: model.decode(ids, skip_special=False))
    return naming(request, JSONResponse({"content": made}), unknown)


@dataclass(frozen=True, slots=True)
class TemplateRequest:
    """A conversation whose prompt is asked for."""

    model: str
    messages: list[Message]
    options: dict[str, Any]
    """Keywords of `Model.prompt`."""
    names: Mapping[str, str]
    """What the body calls them."""
    ignored: tuple[str, ...]

    @classmethod
    def read(cls, body: Fields) -> "TemplateRequest":
        messages = read_messages(body)
        options = {
            "tools": chosen(body, read_tools(body)).get("tools"),
            "continue_final": goes_on(body, messages),
        }
        options |= thinking.read_thinking(body)
        options.pop("think_tokens", None)  # how long to think stands in no prompt
        return cls(body.text("model", ""), messages, options, client_names(body), body.unknown(_CONVERSATION))

    def prompt(self, model: Model) -> str:
        try:
            return model.prompt(self.messages, truncate=False, **able(model, self.options))
        except ModelkitError as error:
            raise renamed(error, self.names) or error from error


async def apply_template(request: Request) -> Response:
    """A conversation as `/v1/chat/completions` takes it, to {"prompt"}."""
    wanted = await read(request, TemplateRequest.read)
    prompt = await call(request, model_of(request, wanted.model), wanted.prompt)
    return naming(request, JSONResponse({"prompt": prompt}), wanted.ignored)


async def props(request: Request) -> Response:
    """What a model is loaded with."""
    name = request.query_params.get("model", "")
    return JSONResponse(await call(request, model_of(request, name, "any"), _props))


def _props(model: Model) -> dict[str, Any]:
    return {
        "default_generation_settings": {
            "n_ctx": model.context_length,
            "params": model.defaults.to_json(),
        },
        "model_alias": model.name,
        "chat_template": model.template or "",
        "modalities": {"vision": False, "audio": False},
    }


def _piece(model: Model, token: int) -> dict[str, Any]:
    """A piece that is not a whole character is its bytes."""
    data = model.token_bytes(token)
    try:
        return {"id": token, "piece": data.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(data)}


DIALECT = Dialect(
    "llama.cpp",
    (
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
        Route("/apply-template", apply_template, methods=["POST"]),
        Route("/props", props),
    ),
    ("/tokenize", "/detokenize", "/apply-template", "/props"),
)
