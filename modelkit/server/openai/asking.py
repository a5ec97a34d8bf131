"""Which model a request means, and what it is told where its prompt is too long."""

from collections.abc import Callable
from typing import Any, Literal

from starlette.requests import Request

from modelkit.errors import PromptTooLong
from modelkit.model import Model
from modelkit.server.faults import refused
from modelkit.server.serving import serving_of
from modelkit.streams import GenerationStream

Start = Callable[[Model, int], GenerationStream]


def model_of(request: Request, name: str, wanted: Literal["text", "vectors", "any"] = "text") -> str:
    """A client of a server with one model may leave the name out. One that makes embeddings and nothing else
    does not count for who wants text, and comes first for who wants vectors.
    """
    if name:
        return name
    serving = serving_of(request)
    if serving.default_model is not None:
        return serving.default_model
    there = [one for one in serving.pool.shown() if one.state != "leaving"]
    if wanted == "text":
        there = [one for one in there if one.writes is not False]
    elif wanted == "vectors" and len(there) > 1:
        there = [one for one in there if one.writes is False]
    names = {one.name for one in there}
    if len(names) != 1:
        raise refused("invalid_request", "model is missing, expected the name of a model", "model")
    return names.pop()


def able(model: Model, options: dict[str, Any]) -> dict[str, Any]:
    """The options without an effort (`think` as a word) that a model cannot make: clients such as Codex send
    one to every model, and mean no more than "if you think".
    """
    if not isinstance(options.get("think"), str) or model.thinking.can:
        return options
    return {name: value for name, value in options.items() if name not in ("think", "think_tokens")}


def told(start: Start) -> Start:
    """The same, with a prompt that is too long told in OpenAI's own words: agents and libraries look for
    them, beside the code, before they shorten a conversation.
    """

    def call(model: Model, row: int) -> GenerationStream:
        try:
            return start(model, row)
        except PromptTooLong as error:
            said = (
                f"This model's maximum context length is {error.context_tokens} tokens. However, your "
                f"messages resulted in {error.prompt_tokens} tokens. {error.hint or ''}"
            )
            raise refused("too_long", said.rstrip()) from error

    return call
