"""`/api/generate` and `/api/chat`: a request's JSON in, what a model is asked out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modelkit.chat.message import Message
from modelkit.server.faults import refused
from modelkit.server.fields import Fields, wrong
from modelkit.server.ollama.messages import read_messages, read_tools, refuse_media
from modelkit.server.ollama.options import Options, read_options
from runtime.records import dataclass
from runtime.sampling.ranges import MOST_LOGPROBS

NAMES = frozenset({"model", "name"})
"""What read_model reads."""
_COMMON = NAMES | {
    *("options", "shift", "format", "think", "template", "top_logprobs", "logprobs", "stream", "keep_alive")
}
_CHAT = _COMMON | {"messages", "tools", "truncate"}
_GENERATE = _COMMON | {
    *("prompt", "system", "suffix", "raw", "context"),
    *("images", "audio", "videos", "width", "height", "steps"),  # which are refused
}
LEVELS = ("low", "medium", "high", "max")
THINKING = ("think", "think_tokens")
"""Keywords that only a template can act on."""
_MOST_CONTEXT = 2_000_000


@dataclass(frozen=True, slots=True)
class Common:
    """What both have."""

    model: str
    options: Options
    keywords: Mapping[str, Any]
    """Of `Model.chat`: format, think, template, top_logprobs, and parameters."""
    stream: bool
    keep_alive: float | None
    """Seconds; None: as the server is set."""
    ignored: tuple[str, ...]
    """What was given and changes nothing."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation to be continued; none at all loads the model, or takes it out of memory."""

    common: Common
    messages: list[Message]
    keywords: Mapping[str, Any]
    """Of `Model.chat`, all of them."""


@dataclass(frozen=True, slots=True)
class Generate:
    """One prompt to be answered; an empty one is as in Chat."""

    common: Common
    prompt: str
    system: str | None
    """None: the package's own."""
    suffix: str
    """The text behind the place to be filled in; "" for none."""
    raw: bool
    earlier: tuple[int, ...]
    """`context` of an earlier answer: what stands before the prompt."""
    thinking: tuple[str, ...]
    """What was given of THINKING, as the request names it."""


def read_chat(body: Fields) -> Chat:
    """Raises Refused."""
    common, messages, tools = _common(body, _CHAT), read_messages(body), read_tools(body)
    keywords = {"truncate": body.flag("truncate", default=True), **common.keywords}
    if tools:
        keywords["tools"] = tools
    if _goes_on(messages):
        keywords["continue_final"] = True
    return Chat(common, messages, keywords)


def read_generate(body: Fields) -> Generate:
    """Raises Refused."""
    common = _common(body, _GENERATE)
    refuse_media(body)
    for field in ("width", "height", "steps"):
        body.refuse(field, "this server makes no pictures")
    raw, earlier = body.flag("raw", default=False), _ids(body)
    if raw and (body.raw("template") or body.raw("system") or earlier):
        raise refused("invalid_request", "raw mode does not support template, system, or context")
    if "template" in common.keywords and body.raw("suffix"):
        raise refused("invalid_request", "a suffix is asked for with the model's own marks, not by template")
    thinking = _of_thinking(body)
    if raw or earlier or body.raw("suffix"):
        common = replace(common, ignored=common.ignored + thinking)
    return Generate(
        common,
        prompt=body.text("prompt", ""),
        system=body.text("system") or None,
        suffix=body.text("suffix", ""),
        raw=raw,
        earlier=earlier,
        thinking=thinking,
    )


def read_model(body: Fields) -> str:
    """`model`, or `name` as older clients say."""
    model, name = body.text("model"), body.text("name")
    named = model or name
    if not named:
        raise refused("invalid_request", "model is required", "model")
    return named


def read_keep_alive(body: Fields) -> float | None:
    """`keep_alive` in seconds; None where the server decides."""
    return None if body.raw("keep_alive") == "" else body.duration("keep_alive")


def _goes_on(messages: list[Message]) -> bool:
    """Is the last message the beginning of the answer? One of the assistant's is, if it says anything."""
    last, before = messages[-1:], messages[-2:-1]
    return all(one.role == "assistant" and one.content and not one.tool_calls for one in last) and not any(
        one.role == "assistant" and not one.tool_calls for one in before
    )


def _of_thinking(body: Fields) -> tuple[str, ...]:
    """What of it was given. It is the template that asks a model for thinking."""
    options = body.fields("options")
    named = [] if options is None else [options.name(one) for one in THINKING if options.has(one)]
    return ("think", *named) if body.has("think") else tuple(named)


def _common(body: Fields, known: frozenset[str]) -> Common:
    options = read_options(body.fields("options"))
    # What Ollama leaves out of a conversation, and whether an answer forgets to go on, are its own affair:
    # `shift` has PARAMETER context_shift here.
    keywords: dict[str, Any] = dict(options.parameters)
    if body.flag("shift"):
        keywords.setdefault("context_shift", "on")
    if (form := _form(body)) is not None:
        keywords["format"] = form
    if (think := _think(body)) is not None:
        keywords["think"] = think
    if template := body.text("template"):
        keywords["template"] = template
    top, idle = body.whole("top_logprobs", 0, MOST_LOGPROBS, default=0), ()
    if body.flag("logprobs", default=False):
        keywords["top_logprobs"] = top
    elif top:
        idle = ("top_logprobs",)
    return Common(
        model=read_model(body),
        options=options,
        keywords=keywords,
        stream=body.flag("stream", default=True),
        keep_alive=read_keep_alive(body),
        ignored=(*options.ignored, *idle, *body.unknown(known)),
    )


def _form(body: Fields) -> str | Mapping[str, Any] | None:
    value = body.raw("format")
    if value is None or value == "":
        return None
    if value == "json" or isinstance(value, Mapping):
        return value
    raise body.wrong("format", '"json" or a JSON schema')


def _think(body: Fields) -> bool | str | None:
    value = body.raw("think")
    if value is None or isinstance(value, bool) or value in LEVELS:
        return value
    raise body.wrong("think", f"true, false, {', '.join(LEVELS)}")


def _ids(body: Fields) -> tuple[int, ...]:
    found = body.items("context", _MOST_CONTEXT)
    for place, one in enumerate(found):
        if type(one) is not int or not 0 <= one < 2**31:
            raise wrong(f"context[{place}]", one, "a token id")
    return tuple(found)
