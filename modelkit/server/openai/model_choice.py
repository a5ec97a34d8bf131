"""Which model a request means, and what it is told where its prompt is too long."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from starlette.requests import Request

from modelkit.answers.streams import GenerationStream
from modelkit.chat.message import Message
from modelkit.errors import ModelkitError, PromptTooLong
from modelkit.model import Model
from modelkit.server.adapter_choice import check_adapters
from modelkit.server.ask import Start
from modelkit.server.faults import Refused, refused, renamed
from modelkit.server.fields import Fields
from modelkit.server.serving import serving_of

_FORM = ("json_schema", "structured_outputs", "response_format", "text")
_BUDGETS = ("reasoning_budget", "thinking_budget", "thinking_budget_tokens")  # one of 0 is no thinking
_SPELT = {
    "format": ("guided_json", *_FORM),
    "grammar": ("grammar", "guided_grammar", "ebnf", *_FORM),
    "regex": ("regex", "guided_regex", "guided_choice", *_FORM),
    "think": (
        "reasoning_effort",
        "reasoning",
        "enable_thinking",
        "thinking",
        "chat_template_kwargs",
        *_BUDGETS,
    ),
    "think_tokens": _BUDGETS,
    "variables": ("chat_template_kwargs",),
    "messages": ("input",),
    "ids": ("prompt",),
}
"""How this dialect's fields call our keywords."""
_FRAME = ("tools", "variables", "truncate", "think", "continue_final")
"""Those that a prompt is made of."""


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


def chat(
    model: Model, messages: list[Message], options: dict[str, Any], name: str = "", notes: Iterable[str] = ()
) -> GenerationStream:
    """The model's answer, with a note on what it was not asked for. name: the client's for the model. notes:
    others that it has.
    """
    left = able(model, options)
    stream = model.chat(messages, stream=True, **left)
    if left is not options:
        stream.note(f"{name or model.name} does not think; the effort that was asked of it was left out")
    for note in notes:
        stream.note(note)
    return stream


def counter(
    messages: list[Message], options: Mapping[str, Any], names: Mapping[str, str]
) -> Callable[[Model], int]:
    """How many tokens the prompt takes that `chat` would make of it. names: as of `in_clients_words`."""
    frame = {name: options[name] for name in _FRAME if name in options}

    def count(model: Model) -> int:
        try:
            check_adapters(model, options)
            prompt = model.prompt(messages, **able(model, frame))
        except ModelkitError as error:
            raise renamed(error, names) or error from error
        return len(model.encode(prompt, add_special=False))

    return count


def client_names(body: Fields) -> dict[str, str]:
    """What the client calls our keywords: of several fields that may set one, the first that it sent."""
    own = {str(field): str(field) for field in body.peek}
    said = {word: body.first(fields) for word, fields in _SPELT.items()}
    return {**{word: field for word, field in said.items() if field}, **own}


def in_clients_words(start: Start, names: Mapping[str, str], prompt: str = "messages") -> Start:
    """The same, with what a model refuses told by the client's own fields (`client_names`), and a prompt that
    is too long, the field `prompt`, in OpenAI's own words: agents and libraries look for them, beside the
    code, before they shorten a conversation.
    """

    def call(model: Model, row: int) -> GenerationStream:
        try:
            return start(model, row)
        except PromptTooLong as error:
            raise too_long(error, f"your {prompt}", prompt) from error
        except ModelkitError as error:
            raise renamed(error, names) or error from error

    return call


def too_long(error: PromptTooLong, what: str, field: str, *, hinting: bool = True) -> Refused:
    """In OpenAI's words. what: it is that the field holds."""
    said = (
        f"This model's maximum context length is {error.context_tokens} tokens. However, {what} resulted in "
        f"{error.prompt_tokens} tokens. {error.hint if hinting and error.hint else ''}"
    )
    return refused("too_long", said.rstrip(), field)
