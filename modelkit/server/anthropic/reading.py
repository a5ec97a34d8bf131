"""`/v1/messages`: a request's JSON in, keyword arguments of `Model.chat` out.

What has a meaning for Anthropic's own machines only (tiers, regions, caches) is let pass, and tools that run
there are left out: a request that offers them beside others can be answered without. A header names both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from modelkit.chat.message import MOST_MESSAGES, Message
from modelkit.server import hints
from modelkit.server.anthropic.declared_tools import changes_in, offered
from modelkit.server.anthropic.messages import read_conversation, read_system, says
from modelkit.server.anthropic.threads import KEPT, Efforts, Thread, Threads
from modelkit.server.conversation import with_wish
from modelkit.server.faults import refused
from modelkit.server.fields import LEAST_TOP_P, Fields
from runtime.quoting import quoted
from runtime.records import dataclass

EFFORTS = ("low", "medium", "high", "xhigh", "max")
_MOST_STOPS = 16
_MOST_TOKENS = 2**31 - 1
_KNOWN = frozenset(
    {
        *("model", "messages", "system", "mcp_servers", "max_tokens", "stop_sequences", "seed"),
        *("temperature", "top_p", "top_k", "output_config", "output_format", "thinking"),
        *("tools", "tool_choice", "stream", "keep_alive", "thread", "compaction"),
    }
)
_HINTS: dict[str, hints.Kind] = {
    "metadata": hints.thing,
    "service_tier": hints.one_of("auto", "standard_only"),
    "speed": hints.one_of("standard", "fast"),
    "container": hints.text_or_thing,
    "inference_geo": hints.text,
    "user_profile_id": hints.text,
    "workspace_id": hints.text,
    "cache_control": hints.thing,
    "context_management": hints.thing,
    "diagnostics": hints.thing,
    "billing_policy": hints.thing,
    "betas": hints.texts,
}
_THINKING = ("enabled", "disabled", "adaptive", "between_tools")


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """What was asked for."""

    model: str
    messages: list[Message]
    keywords: Mapping[str, Any]
    """Of `Model.chat`, but for `think`."""
    think: bool | str
    """As of `Model.chat`, for a model that can think; another one is not asked to."""
    stream: bool
    omitted: bool
    """What is thought is not shown."""
    compacts: bool
    """The answer is a summary of what was said."""
    thread: Thread | None
    """All that was said, where it is to be kept for a next turn."""
    keep_alive: float | None
    """As for the pool's `acquire`."""
    ignored: tuple[str, ...]
    """What was given and changes nothing: fields, and tools that were left out."""

    @property
    def warms(self) -> bool:
        """Is the prompt only to be read, so that the next one like it is known?"""
        return self.keywords.get("num_predict") == 0


def read_messages_request(body: Fields, threads: Threads, *, counting: bool = False) -> MessagesRequest:
    """counting: only its tokens are wanted, so `max_tokens` may be missing. Raises Refused."""
    thread = threads.of(body)
    if thread is not None and thread.follows:
        body = body.entry({**body.peek, **thread.fields}, "")
    model, messages = body.needed_text("model"), _messages(body, thread)
    before = thread.changes if thread else ()
    changes = [*(body.entry(one, "thread") for one in before), *changes_in(body)]
    tools, ignored = _tools(offered(body, changes))
    efforts = _efforts(body, thread.efforts if thread else (None, None))
    if thread is not None:
        thread = _gone_on(body, thread, changes, efforts)
    wish = None if counting else body.fields("compaction")
    if wish is not None:
        messages = with_wish(messages, _instructions(wish))
    _check_hints(body)
    think, budget, omitted = _thinking(body, efforts[0])
    keywords = _keywords(body, counting=counting) | _calls(body, tools) | _goes_on(messages)
    if budget is not None:
        keywords["think_tokens"] = budget
    return MessagesRequest(
        model=model,
        messages=messages,
        keywords=keywords if wish is None else _of_summary(keywords),
        think=think,
        stream=body.flag("stream", default=False),
        omitted=omitted,
        compacts=wish is not None,
        thread=thread if wish is None else None,
        keep_alive=body.duration("keep_alive"),
        ignored=(*ignored, *body.unknown(_KNOWN)),
    )


def _messages(body: Fields, thread: Thread | None) -> list[Message]:
    said, system = read_conversation(body, thread.said if thread else ()), read_system(body)
    return [Message("system", system), *said] if system else said


def _goes_on(messages: Sequence[Message]) -> dict[str, Any]:
    """What the model is to write on, where the last message is its own."""
    last = messages[-1]
    return {"continue_final": True} if last.role == "assistant" and not last.tool_calls else {}


def _calls(body: Fields, tools: list[dict[str, Any]]) -> dict[str, Any]:
    choice = _choice(body, [tool["function"]["name"] for tool in tools])
    return {"tools": tools, **choice} if tools else {}


def _of_summary(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """A summary has no form and calls nothing."""
    kept = {name: value for name, value in keywords.items() if name != "format"}
    return {**kept, "tool_choice": "none"} if "tools" in kept else kept


def _gone_on(body: Fields, thread: Thread, changes: Sequence[Fields], efforts: Efforts) -> Thread:
    """The thread with what this request adds to it."""
    fields = {name: body.raw(name) for name in KEPT}
    said = read_conversation(body, thread.said, goes_on=True)
    return replace(thread, said=said, fields=fields, changes=[one.peek for one in changes], efforts=efforts)


def _check_hints(body: Fields) -> None:
    """Refuse what cannot be done, and what would change nothing where it is not what it is on the wire."""
    hints.check_hints(body, _HINTS)
    if (about := body.fields("metadata")) is not None:
        hints.check_hints(about, {"user_id": hints.text})
    body.refuse("mcp_servers", "this server calls no other servers")


def _keywords(body: Fields, *, counting: bool) -> dict[str, Any]:
    """Of `Model.chat`: what does not depend on the conversation. counting: as in `read_messages_request`."""
    keywords: dict[str, Any] = {"truncate": False, **_sampling(body)}
    if counting:
        keywords.pop("num_predict", None)
    elif "num_predict" not in keywords:
        raise refused("invalid_request", "max_tokens: Field required", "max_tokens")
    if (form := _form(body)) is not None:
        keywords["format"] = form
    return keywords


def _instructions(given: Fields) -> str:
    """What is asked of a summary; "" for the usual."""
    if given.choice("type", ("summarize",)) is None:
        raise given.wrong("type", "'summarize'")
    return given.text("instructions", "").strip()


def _sampling(body: Fields) -> dict[str, Any]:
    """`seed` is not a field of Anthropic's; without it, no answer of this dialect could be had again."""
    stops, seed = [one for one in body.texts("stop_sequences", _MOST_STOPS) if one], body.whole("seed")
    top_p = body.number("top_p", 0, 1)
    found = {
        # More than the context holds is fine: an answer ends where the context does.
        "num_predict": body.whole("max_tokens", 0, _MOST_TOKENS),
        "temperature": body.number("temperature", 0, 2),
        "top_p": LEAST_TOP_P if top_p == 0 else top_p,
        "top_k": body.whole("top_k", 0, _MOST_TOKENS),
        "stop": body.fit("stop_sequences", "stop", stops) if stops else None,
        "seed": seed if seed is None else body.fit("seed", "seed", seed),
    }
    return {name: value for name, value in found.items() if value is not None}


def _form(body: Fields) -> Mapping[str, Any] | None:
    """`output_config.format`, or `output_format` as it was called first."""
    output = body.fields("output_config")
    given = (output.fields("format") if output else None) or body.fields("output_format")
    if given is None:
        return None
    if given.text("type", "json_schema") != "json_schema":
        raise given.wrong("type", "'json_schema'")
    return given.inner("schema").value


def _efforts(body: Fields, before: Efforts) -> Efforts:
    """Behind words of the user a system message sets it at once, elsewhere from the next ones on. Results of
    tools are no words.
    """
    (now, coming), said = before, False
    for message in body.each("messages", MOST_MESSAGES):
        if message.raw("role") == "system":
            given = message.fields("output_config")
            coming = (given.choice("effort", EFFORTS) if given else None) or coming
        else:
            said = message.raw("role") == "user" and says(message)
        if said and coming:
            now, coming = coming, None
    return now, coming


def _thinking(body: Fields, set_to: str | None) -> tuple[bool | str, int | None, bool]:
    """`think`, the budget in tokens, and whether what is thought stays hidden. set_to: the effort, where the
    conversation sets one.
    """
    output, given = body.fields("output_config"), body.fields("thinking")
    effort = output.choice("effort", EFFORTS) if output else None
    kind = given.choice("type", _THINKING) if given else None
    if given is None or kind is None or kind == "disabled":
        if output is not None:
            output.idle("effort")
        for message in body.each("messages", MOST_MESSAGES):
            message.idle("output_config")
        return False, None, False
    budget = given.whole("budget_tokens", 1, _MOST_TOKENS) if kind == "enabled" else None
    return set_to or effort or True, budget, given.choice("display", ("summarized", "omitted")) == "omitted"


def _tools(there: Sequence[Fields]) -> tuple[list[dict[str, Any]], list[str]]:
    """In the shape that templates know, and what was left out."""
    tools, ignored = list[dict[str, Any]](), list[str]()
    for given in there:
        kind, name = given.text("type", "custom"), given.needed_text("name")
        if kind != "custom":
            ignored.append(f"tools.{name}")
            continue
        schema = given.fields("input_schema")
        function: dict[str, Any] = {"name": name}
        if (description := given.text("description")) is not None:
            function["description"] = description
        function["parameters"] = dict(schema.value) if schema else {"type": "object", "properties": {}}
        if given.flag("strict"):
            function["strict"] = True
        tools.append({"type": "function", "function": function})
    return tools, ignored


def _choice(body: Fields, names: list[str]) -> dict[str, Any]:
    given = body.fields("tool_choice")
    if given is None:
        return {}
    kind = given.choice("type", ("auto", "any", "tool", "none"), "auto")
    found: dict[str, Any] = {}
    if given.flag("disable_parallel_tool_use", default=False):
        found["parallel_tool_calls"] = False
    if kind == "tool":
        name = given.needed_text("name")
        if name not in names:
            raise refused(
                "invalid_request", f"tool_choice.name is {quoted(name)}, none of the tools", "tool_choice"
            )
        return {**found, "tool_choice": name}
    if kind == "any" and not names:
        said = "tool_choice asks for a call, and there is no tool that can be called here"
        raise refused("invalid_request", said, "tool_choice")
    return found if kind == "auto" else {**found, "tool_choice": "required" if kind == "any" else "none"}
