"""`/v1/embeddings`: texts or token ids in, a vector for each out, as numbers or as base64 of float32."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from modelkit.errors import ModelkitError, PromptTooLong
from modelkit.model import Model
from modelkit.server.calling import call
from modelkit.server.faults import refused, renamed
from modelkit.server.fields import Fields
from modelkit.server.http.writing import json_response
from modelkit.server.openai import sampling
from modelkit.server.openai.completion_request import Prompt, read_prompts
from modelkit.server.openai.model_choice import model_of, too_long
from modelkit.server.replying import naming, read
from runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np

MOST_INPUTS = 2048
_MOST_DIMENSIONS = 1 << 20
_KNOWN = frozenset({
    "model", "input", "encoding_format", "dimensions", "keep_alive", "user", "prompt_name", "adapters",
})  # fmt: skip
_NAMES = {"texts": "input", **{name: name for name in ("dimensions", "prompt_name", "adapters")}}
"""How this dialect calls what `Model.embed` takes."""
Encoding = Literal["float", "base64"]


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """What was asked for."""

    model: str
    inputs: list[Prompt]
    encoding: Encoding
    dimensions: int | None
    """Elements of each vector; None: all there are."""
    prompt: str | None
    """Which of the model's prompts stands before each text; None: as its authors have it."""
    adapters: dict[str, Any]
    """The keyword argument of that name, where it was given."""
    keep_alive: float | None
    """Seconds that the model stays; None: as the server is set."""
    hints: tuple[str, ...]
    """Fields that were given and change nothing."""


def read_embeddings(body: Fields) -> EmbeddingsRequest:
    """Raises Refused with the field's name."""
    sampling.refuse_unknown(body, _KNOWN)
    inputs = read_prompts(body, "input", MOST_INPUTS)
    if "" in inputs:
        raise refused("invalid_request", "input has an empty text, expected at least one character", "input")
    encoding = body.choice("encoding_format", ("float", "base64"), "float")
    return EmbeddingsRequest(
        model=body.text("model", ""),
        inputs=inputs,
        encoding="base64" if encoding == "base64" else "float",
        dimensions=body.whole("dimensions", 1, _MOST_DIMENSIONS),
        prompt=body.text("prompt_name"),
        adapters=sampling.adapters_in(body),
        keep_alive=sampling.read_keep_alive(body),
        hints=sampling.hints_in(body),
    )


def embeddings_answer(
    asked: EmbeddingsRequest, vectors: "np.ndarray", tokens: Sequence[int]
) -> dict[str, Any]:
    """The answer. vectors: float32 [N, D]. tokens: how many of each input were read."""
    data = [
        {"object": "embedding", "index": place, "embedding": _encoded(vector, asked.encoding)}
        for place, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens)}
    return {"object": "list", "data": data, "model": asked.model, "usage": usage}


def _encoded(vector: "np.ndarray", encoding: Encoding) -> str | list[float]:
    """base64 is of little-endian float32, whatever the machine."""
    if encoding == "float":
        return vector.tolist()
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


async def embeddings(request: Request) -> Response:
    asked = await read(request, read_embeddings)

    def embed(model: Model) -> dict[str, Any]:
        try:
            found = model.embed(
                asked.inputs,
                dimensions=asked.dimensions,
                truncate=False,
                prompt_name=asked.prompt,
                **asked.adapters,
            )
        except PromptTooLong as error:
            where = error.message.partition(" ")[0].replace("texts", "input", 1)
            raise too_long(error, where, where, hinting=False) from error
        except ModelkitError as error:
            raise renamed(error, _NAMES) or error from error
        return embeddings_answer(replace(asked, model=asked.model or model.name), found.vectors, found.tokens)

    name = model_of(request, asked.model, "vectors")
    said = await call(request, name, embed, asked.keep_alive, embeds=True)
    return naming(request, await json_response(request, said), asked.hints)
