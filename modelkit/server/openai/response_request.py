"""A request for a response: its JSON in, keyword arguments of `Model.chat` out.

Its `input` is a text or a list of items; those of one turn of the assistant (reasoning, message, calls) are
put together into one message.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from modelkit.chat.message import Message
from modelkit.server import hints
from modelkit.server.conversation import Calls
from modelkit.server.faults import refused
from modelkit.server.fields import Fields
from modelkit.server.models.turns import Priority
from modelkit.server.openai import forms, sampling, thinking, tools
from modelkit.server.openai.input_items import ADDED, Turns, read_items
from modelkit.server.openai.listed_items import with_ids
from modelkit.server.openai.response_items import ItemOptions
from modelkit.server.openai.response_store import Items, Kept
from modelkit.server.openai.updates import updates_in
from runtime.quoting import quoted
from runtime.records import dataclass

_OWN = frozenset(
    {
        "model",
        "input",
        "instructions",
        "stream",
        "stream_options",
        "include",
        "previous_response_id",
        "text",
        "truncation",
        "max_output_tokens",
        "top_logprobs",
        "background",
        "conversation",
        "prompt",
    }
)
_HINTS: dict[str, hints.Kind] = {
    "access_programs": hints.thing,
    "background_options": hints.thing,
    "client_metadata": hints.thing,
    "context_management": hints.things,
    "image": hints.thing,
    "max_tool_calls": hints.whole,
    "personality": hints.text,
}
_OF_TEXT: dict[str, hints.Kind] = {"verbosity": hints.one_of("low", "medium", "high")}
KNOWN = _OWN | _HINTS.keys() | sampling.FIELDS | thinking.FIELDS | forms.FIELDS | tools.FIELDS
_LOGPROBS = "message.output_text.logprobs"
_SEALED = "reasoning.encrypted_content"
_SUMMARIES = ("auto", "concise", "detailed")


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """What was asked for."""

    model: str
    messages: list[Message]
    """The whole conversation, with what `previous_response_id` stands for."""
    said: list[Message]
    """Of these, all but the instructions: what a later request goes on from."""
    items: Items
    """The same as it was sent."""
    options: dict[str, Any]
    """Keyword arguments of `Model.chat`."""
    stream: bool
    store: bool
    """May a later request go on from this one?"""
    background: bool
    """It is made whether somebody waits for it or not."""
    written: ItemOptions
    echo: dict[str, Any]
    """What the answer's object says again of the request."""
    keep_alive: float | None
    """Seconds that the model stays; None: as the server is set."""
    priority: Priority | None
    """Who goes first where many wait."""
    hints: tuple[str, ...] = ()
    """Fields that were given and change nothing."""
    dropped: tuple[str, ...] = field(default=())
    """Types of tools that only OpenAI's own servers run."""
    notes: tuple[str, ...] = ()
    """What cannot be enforced."""


def read_response(body: Fields, kept: Kept) -> ResponseRequest:
    """Raises Refused with the field's name. kept: earlier responses."""
    sampling.refuse_unknown(body, KNOWN)
    _refuse_stored(body)
    _check_stream_options(body)
    before, earlier = _before(body, kept)
    given = _given(body, kept, earlier)
    offered, listed, dropped = _tools([*body.each("tools", tools.MOST_TOOLS), *_added(earlier, given)])
    found = tools.chosen(body, offered)
    include = body.texts("include")
    updates = updates_in(earlier, given)
    options, idle = updates.of(_options(body)) | found, {*hints.check_hints(body, _HINTS)}
    top = body.whole("top_logprobs", 0, sampling.MOST_TOP_LOGPROBS)
    if _LOGPROBS in include:
        options["top_logprobs"] = top or 0
    elif top is not None:
        idle.add("top_logprobs")  # it is `include` that asks for them
    idle.update(f"include.{one}" for one in include if one not in (_LOGPROBS, _SEALED))
    said = [*before, *_input_messages(body, given)]
    _check_results(said)
    instructions = body.text("instructions")
    opening = [Message("system", instructions)] if instructions else []
    return ResponseRequest(
        model=body.text("model", ""),
        messages=[*opening, *said],
        said=said,
        items=with_ids(earlier, (one.peek for one in given)),
        options=options,
        stream=body.flag("stream", default=False),
        store=body.flag("store", default=True),
        background=_background(body),
        written=ItemOptions(
            _summarized(body), _SEALED in include, _LOGPROBS in include, offered.client_tools
        ),
        echo=updates.said_again(body, _echo(body, listed)),
        keep_alive=sampling.read_keep_alive(body),
        priority=sampling.read_priority(body),
        hints=tuple(sorted({*sampling.hints_in(body), *idle} - {"store"})),
        dropped=dropped,
        notes=tuple(offered.notes),
    )


def _summarized(body: Fields) -> bool:
    """Is what was thought to come as a summary, under the field's name of today or its first one?"""
    given = body.fields("reasoning")
    if given is None:
        return False
    now, before = (given.choice(one, _SUMMARIES) for one in ("summary", "generate_summary"))
    return bool(now or before)


def _options(body: Fields) -> dict[str, Any]:
    options: dict[str, Any] = {"truncate": body.choice("truncation", ("auto", "disabled")) == "auto"}
    options |= sampling.read_sampling(body) | thinking.read_thinking(body) | forms.read_form(body)
    if (most := body.whole("max_output_tokens", 0)) is not None:
        options["num_predict"] = body.fit("max_output_tokens", "num_predict", most)
    text = body.fields("text")
    if text is not None:
        hints.check_hints(text, _OF_TEXT)
    form = None if text is None else text.fields("format")
    return options if form is None else options | forms.read_format(form)


def _refuse_stored(body: Fields) -> None:
    for name, why in (
        (
            "conversation",
            "conversations are not kept by this server; send the items, or previous_response_id",
        ),
        ("prompt", "prompts are not kept by this server; send the text as input"),
        ("functions", "functions are given as tools"),
        ("function_call", "functions are given as tools, and chosen by tool_choice"),
    ):
        body.refuse(name, why)


def _check_stream_options(body: Fields) -> None:
    if (told := body.raw("stream_options")) is not None:
        Fields(told, "stream_options").flag("include_obfuscation")
        body.idle("stream_options")


def _background(body: Fields) -> bool:
    wanted = body.flag("background", default=False)
    if wanted and not body.flag("store", default=True):
        why = "an answer made in the background has to be stored, and store is false"
        raise refused("invalid_request", f"background: {why}", "background")
    return wanted


def _before(body: Fields, kept: Kept) -> tuple[Sequence[Message], Items]:
    """What `previous_response_id` stands for."""
    id = body.text("previous_response_id")  # noqa: A001
    if not id:
        return (), {}
    found, items = kept.conversation(id), kept.items(id)
    if found is None or items is None:
        field = "previous_response_id"
        if kept.response(id) is not None:
            raise refused(
                "invalid_request", f"{field}: {quoted(id)} has no whole answer to go on from", field
            )
        said = f"{field}: {quoted(id)} is not kept here. Only the latest are, until the server stops, unless "
        raise refused("not_found", f"{said}store was false. Send the whole conversation as input.", field)
    return found, items


def _given(body: Fields, kept: Kept, earlier: Items) -> list[Fields]:
    """The items of `input`, with those that it only names; not those that are said already. A request without
    input answers an empty text.
    """
    value = body.raw("input")
    if value is None or isinstance(value, str):
        return [body.entry({"role": "user", "content": value or ""}, "input")]
    return [_named(one, kept) for one in body.each("input") if not _said_before(one, earlier)]


def _said_before(item: Fields, earlier: Items) -> bool:
    return _names_another(item) and item.needed_text("id") in earlier


def _names_another(item: Fields) -> bool:
    """Its type may be left out, as that of a message, which has a role."""
    kind = item.text("type")
    return kind == "item_reference" or (kind is None and item.has("id") and not item.has("role"))


def _named(item: Fields, kept: Kept) -> Fields:
    """The item itself, where this one only names it."""
    if not _names_another(item):
        return item
    id, where = item.needed_text("id"), item.where  # noqa: A001
    if (found := kept.item(id)) is None:
        why = "is not kept here. Only those of the latest responses are, unless store was false"
        raise refused("not_found", f"{where}: the item {quoted(id)} {why}; send the item itself", where)
    return Fields(json.loads(found), where)


def _input_messages(body: Fields, given: Sequence[Fields]) -> list[Message]:
    turns = Turns()
    read_items(given, turns)
    if not turns.messages:
        what = "is an empty list" if body.raw("input") == [] else "has nothing in it that is said"
        raise refused("invalid_request", f"input {what}, expected at least one item", "input")
    return turns.messages


def _check_results(said: Sequence[Message]) -> None:
    """A result belongs to a call in front of it."""
    calls = Calls()
    for message in said:
        if calls.lack(message):
            told = f"no call in front of it has the call_id {quoted(message.tool_call_id)} of a result"
            hint = "send the call too, or previous_response_id"
            raise refused("invalid_request", f"input: {told}; {hint}", "input")


def _added(earlier: Items, given: Sequence[Fields]) -> Iterator[Fields]:
    """Tools that items of the conversation bring."""
    before = (
        Fields(json.loads(one), "previous_response_id") for one in earlier.values() if ADDED.encode() in one
    )
    for item in (*before, *given):
        if item.text("type") == ADDED:
            yield from item.each("tools", tools.MOST_TOOLS)


def _tools(
    there: Sequence[Fields],
) -> tuple[tools.Offered, list[Mapping[str, Any]], tuple[str, ...]]:
    """Those that there are; the same as the answer's object says them again; and types of those that run on
    OpenAI's servers, which are not there: agents always send some, and the log names them.
    """
    offered, listed, dropped = tools.Offered(), list[Mapping[str, Any]](), list[str]()
    for one in there:
        kind = one.needed_text("type")
        within = list(one.each("tools", tools.MOST_TOOLS)) if kind == "namespace" else []
        for inner in within:
            offered.add(inner, inner.choice("type", tools.KINDS, "function"), one)
        if kind in tools.KINDS:
            offered.add(one.fields(kind) or one, kind)
        if kind == "function":  # strict clients want all of its fields
            listed.append({"type": kind, "strict": None, **offered.functions[-1]["function"]})
        elif kind in tools.KINDS or within:
            listed.append(one.peek)
        else:
            dropped.append(kind[:40])
    return offered, listed, tuple(dropped)


def _echo(body: Fields, listed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    reasoning, text = body.fields("reasoning"), body.fields("text")
    given: dict[str, Any] = {
        "instructions": body.raw("instructions"),
        "max_output_tokens": body.raw("max_output_tokens"),
        "max_tool_calls": body.raw("max_tool_calls"),
        "metadata": body.raw("metadata") or {},
        "parallel_tool_calls": body.raw("parallel_tool_calls") is not False,
        "previous_response_id": body.raw("previous_response_id"),
        "reasoning": {
            "effort": reasoning.raw("effort") if reasoning else None,
            "summary": reasoning.raw("summary") if reasoning else None,
        },
        "store": body.raw("store") is not False,
        "temperature": body.raw("temperature"),
        "text": {"format": {"type": "text"}, **(text.peek if text else {})},
        "tool_choice": body.raw("tool_choice") or "auto",
        "tools": listed,
        "top_logprobs": body.raw("top_logprobs"),
        "top_p": body.raw("top_p"),
        "truncation": body.raw("truncation") or "disabled",
        "background": body.raw("background") is True,
        "service_tier": "default",
        "user": body.raw("user"),
    }
    return given
