"""A request for a chat completion: its JSON in, keyword arguments of `Model.chat` out."""

from dataclasses import field, replace
from typing import Any

from modelkit.chat.message import Message
from modelkit.server import hints
from modelkit.server.faults import refused
from modelkit.server.fields import Fields
from modelkit.server.models.turns import Priority
from modelkit.server.openai import forms, sampling, thinking, tools
from modelkit.server.openai.client_tools import ClientTool, ClientTools
from modelkit.server.openai.messages import goes_on, read_messages
from runtime.quoting import quoted
from runtime.records import dataclass

_OWN = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "n",
        "best_of",
        "logprobs",
        "top_logprobs",
        "modalities",
        "audio",
        "continue_final_message",
        "add_generation_prompt",
        "timings_per_token",
        "return_progress",
    }
)
KNOWN = _OWN | sampling.FIELDS | thinking.FIELDS | forms.FIELDS | tools.FIELDS


@dataclass(frozen=True, slots=True)
class Style:
    """How an answer is told."""

    stream: bool = False
    usage: bool = False
    """A stream ends with what it cost."""
    timings: bool = False
    """Times and drafts are told, as llama.cpp does."""
    progress: bool = False
    """A stream tells now and then how much of the prompt was read, as llama.cpp does."""
    logprobs: bool = False
    client_tools: ClientTools = field(default_factory=dict[str, ClientTool])


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What was asked for."""

    model: str
    messages: list[Message]
    options: dict[str, Any]
    """Keyword arguments of `Model.chat`."""
    rows: int
    """How many answers."""
    style: Style
    keep_alive: float | None
    """Seconds that the model stays; None: as the server is set."""
    priority: Priority | None
    """Who goes first where many wait."""
    hints: tuple[str, ...]
    """Fields that were given and change nothing."""
    notes: tuple[str, ...] = ()
    """What cannot be enforced."""


def read_chat(body: Fields, most_rows: int) -> ChatRequest:
    """Raises Refused with the field's name. most_rows: answers to one request."""
    sampling.refuse_unknown(body, KNOWN)
    _check_media(body)
    messages = read_messages(body)
    continues = goes_on(body, messages)
    # What the client left out of the conversation is its own affair; nothing is left out here.
    options: dict[str, Any] = {
        "truncate": False,
        **sampling.read_sampling(body),
        **thinking.read_thinking(body),
    }
    offered = tools.read_tools(body)
    options |= forms.read_form(body) | tools.chosen(body, offered)
    if continues:
        options["continue_final"] = True
    if (top := sampling.read_top_logprobs(body)) is not None:
        options["top_logprobs"] = top
    rows = read_rows(body, most_rows)
    return ChatRequest(
        model=body.text("model", ""),
        messages=messages,
        options=options,
        rows=rows,
        style=replace(read_style(body, logprobs=top is not None), client_tools=offered.client_tools),
        keep_alive=sampling.read_keep_alive(body),
        priority=sampling.read_priority(body),
        hints=sampling.hints_in(body),
        notes=tuple(offered.notes),
    )


def read_rows(body: Fields, most: int) -> int:
    """`n`. The best of more than are given back is not looked for."""
    rows = body.whole("n", 1, most, default=1)
    if (best := body.whole("best_of", 0, 1024)) and best != rows:
        raise refused(
            "invalid_request", f"best_of is {best}; this server gives every answer that it makes", "best_of"
        )
    return rows


def read_style(body: Fields, *, logprobs: bool) -> Style:
    """How the answer is to be told."""
    told, stream = body.fields("stream_options"), body.flag("stream", default=False)
    usage, progress = False, body.flag("return_progress", default=False)
    if told is not None:
        told.flag("include_obfuscation")
        told.idle("include_obfuscation")
        told.refuse("continuous_usage_stats", "what an answer cost is told at its end")
        usage = told.flag("include_usage", default=False)
    if not stream:  # an answer in one always says what it cost, and comes when all is read
        body.idle("return_progress")
        if told is not None:
            told.idle("include_usage")
    timings = body.flag("timings_per_token", default=False)
    return Style(stream, usage, timings, progress, logprobs)


def _check_media(body: Fields) -> None:
    hints.check_hints(body, {"audio": hints.thing})
    for place, one in enumerate(body.items("modalities", 8)):
        if one != "text":
            where = f"modalities[{place}]"
            raise refused("invalid_request", f"{where} is {quoted(one)}; this server answers in text", where)
