"""`/api/embed`, and `/api/embeddings` as older clients ask: a vector for each text."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from modelkit.errors import PromptTooLong
from modelkit.model import Model
from modelkit.server.calling import call
from modelkit.server.faults import refused
from modelkit.server.fields import Fields
from modelkit.server.http.writing import json_response
from modelkit.server.ollama.options import Options, read_options
from modelkit.server.ollama.reading import read_keep_alive
from modelkit.server.ollama.wire import nanoseconds
from modelkit.server.replying import naming, read
from modelkit.server.serving import trace_of
from runtime.records import dataclass

MOST_INPUTS = 2048
_MOST_DIMENSIONS = 1 << 20
_LEGACY = frozenset({"model", "prompt", "options", "keep_alive"})
_EMBED = frozenset({"model", "input", "truncate", "dimensions", "options", "keep_alive", "prompt_name"})


@dataclass(frozen=True, slots=True)
class Embed:
    """What was asked for; no text at all loads the model."""

    model: str
    texts: list[str]
    truncate: bool
    dimensions: int | None
    """Elements of each vector; None: all there are."""
    options: Options
    keep_alive: float | None
    """Seconds; None: as the server is set."""

    unknown: tuple[str, ...]
    """Fields that were given and are none of this."""
    prompt: str | None = None
    """Which of the model's prompts stands before each text; None: as its authors have it."""

    @property
    def ignored(self) -> tuple[str, ...]:
        """What was given and changes no vector: no option does."""
        context = () if self.options.context is None else ("options.num_ctx",)
        options = (*self.options.ignored, *(f"options.{name}" for name in self.options.parameters))
        return (*options, *context, *self.unknown)


def read_embed(body: Fields) -> Embed:
    """Of /api/embed. Raises Refused."""
    texts = [] if body.raw("input") == "" else body.texts("input", MOST_INPUTS)
    return Embed(
        model=body.needed_text("model"),
        texts=texts,
        truncate=body.flag("truncate", default=True),
        dimensions=body.whole("dimensions", 0, _MOST_DIMENSIONS) or None,
        options=read_options(body.fields("options")),
        keep_alive=read_keep_alive(body),
        unknown=body.unknown(_EMBED),
        prompt=body.text("prompt_name"),
    )


def read_legacy(body: Fields) -> Embed:
    """Of /api/embeddings: one text. Raises Refused."""
    text = body.text("prompt", "")
    options = read_options(body.fields("options"))
    texts, unknown = [text] if text else [], body.unknown(_LEGACY)
    return Embed(body.needed_text("model"), texts, True, None, options, read_keep_alive(body), unknown)


async def embed(request: Request) -> Response:
    asked, began_s = await read(request, read_embed), time.monotonic()

    def made(model: Model) -> dict[str, Any]:
        try:
            found = model.embed(
                asked.texts,
                dimensions=asked.dimensions,
                truncate=asked.truncate,
                prompt_name=asked.prompt,
            )
        except PromptTooLong as error:
            raise refused("too_long", "the input length exceeds the context length", "input") from error
        return {"embeddings": found.vectors.tolist(), "prompt_eval_count": sum(found.tokens)}

    work = made if asked.texts else _nothing
    said = await call(request, asked.model, work, asked.keep_alive, embeds=True)
    times = {
        "total_duration": nanoseconds(time.monotonic() - began_s),
        "load_duration": nanoseconds(trace_of(request).load_s),
    }
    return naming(
        request, await json_response(request, {"model": asked.model, **said, **times}), asked.ignored
    )


async def embeddings(request: Request) -> Response:
    """One vector, of the length that it has."""
    asked = await read(request, read_legacy)

    def made(model: Model) -> list[float]:
        return model.embed(asked.texts, normalize=False).vectors[0].tolist() if asked.texts else []

    said = await call(request, asked.model, made, asked.keep_alive, embeds=True)
    return naming(request, await json_response(request, {"embedding": said}), asked.ignored)


def _nothing(_: Model) -> dict[str, Any]:
    return {"embeddings": []}


ROUTES = (
    Route("/api/embed", embed, methods=["POST"]),
    Route("/api/embeddings", embeddings, methods=["POST"]),
)
