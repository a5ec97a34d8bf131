"""A conversation as clients of OpenAI's chat completions send it.

They send back what they were given, and what other servers gave them: fields that carry nothing are let
pass, a call with broken arguments is kept as it was written, thinking is taken from whichever field has it.
What carries content that is not text (images, sound, files) is refused, by its place.
"""

from collections.abc import Sequence

from modelkit.chat.message import MOST_CALLS, MOST_MESSAGES, Message, ToolCall
from modelkit.server.conversation import Calls, call_of, without_blank_end
from modelkit.server.faults import Refused, refused
from modelkit.server.fields import Fields
from runtime.quoting import quoted

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_THINKING = ("reasoning_content", "reasoning", "thinking")
_TEXTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
_MEDIA = ("images", "image", "audio", "video", "videos", "files")


def read_messages(body: Fields) -> list[Message]:
    """`messages`, at least one."""
    messages, calls = list[Message](), Calls()
    for one in body.each("messages", MOST_MESSAGES):
        messages.append(_message(one))
        if calls.lack(messages[-1]) and one.text("role") != "function":  # the older kind stands alone
            raise _without_call(one)
    if not messages:
        raise refused(
            "invalid_request", "messages is missing or empty, expected at least one message", "messages"
        )
    return without_blank_end(messages)


def goes_on(body: Fields, messages: Sequence[Message]) -> bool:
    """Is the last message the beginning of the answer? One of the assistant is, unless the client says
    otherwise.
    """
    wanted, anew = body.flag("continue_final_message"), body.flag("add_generation_prompt")
    last, before = messages[-1], messages[-2] if len(messages) > 1 else Message("user")
    if wanted and anew:
        raise refused(
            "invalid_request",
            "continue_final_message and add_generation_prompt exclude each other",
            "continue_final_message",
        )
    if wanted is None:
        wanted = last.role == "assistant" and not last.tool_calls and not anew
    if anew is False and not wanted:
        raise refused(
            "invalid_request",
            "add_generation_prompt is false, and there is no last message of the assistant to continue",
            "add_generation_prompt",
        )
    if wanted and before.role == "assistant" and not before.tool_calls:
        raise refused("invalid_request", "the last two messages are both the assistant's", "messages")
    return wanted


def text_of(given: Fields, field: str) -> str:
    """A text, or text parts put together; nothing is the empty text."""
    value = given.raw(field)
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise given.wrong(field, "a text, or a list of text parts")
    places = (f"{given.name(field)}[{place}]" for place in range(len(value)))
    return "".join(
        one if isinstance(one, str) else _part(given.entry(one, at))
        for one, at in zip(value, places, strict=True)
    )


def _message(given: Fields) -> Message:
    role = given.choice("role", ROLES)
    if role is None:
        raise given.wrong("role", f"one of {', '.join(ROLES)}")
    for field in _MEDIA:
        given.refuse(field, "this server reads text only")
    content = text_of(given, "content")
    if role in ("tool", "function"):
        return Message("tool", content, name=given.text("name"), tool_call_id=given.text("tool_call_id"))
    if role != "assistant":
        return Message(role, content)
    content = content or given.text("refusal", "")
    return Message("assistant", content, _thinking(given), tuple(_calls(given)))


def _without_call(given: Fields) -> Refused:
    where, id = given.name("tool_call_id"), given.text("tool_call_id")  # noqa: A001
    told = "no message in front of it has tool_calls"
    if id:
        told = f"{quoted(id)} is the id of no call in the tool_calls of a message in front of it"
    hint = "a message of role 'tool' must follow the call that it answers: send both, or leave both out"
    return refused("invalid_request", f"{where}: {told}; {hint}", where)


def _thinking(given: Fields) -> str | None:
    """The first that is not empty: clients send an empty one beside the real one."""
    for field in _THINKING:
        if (text := text_of(given, field)) and text.strip():
            return text
    return None


def _calls(given: Fields) -> list[ToolCall]:
    calls = [_call(one) for one in given.each("tool_calls", MOST_CALLS)]
    older = given.fields("function_call")
    if older is not None and not calls:
        arguments, where = older.raw("arguments"), older.name("arguments")
        calls.append(call_of(older.needed_text("name"), arguments, None, where))
    return calls


def _call(given: Fields) -> ToolCall:
    if given.text("type") == "custom":
        custom = given.inner("custom")
        return ToolCall(custom.needed_text("name"), {"input": custom.text("input", "")}, given.text("id"))
    function = given.inner("function")
    arguments, where = function.raw("arguments"), function.name("arguments")
    return call_of(function.needed_text("name"), arguments, given.text("id") or None, where)


def _part(given: Fields) -> str:
    kind, where = given.text("type", "text"), given.where
    if kind not in _TEXTS:
        raise refused(
            "invalid_request", f"{where} is of type {quoted(kind)}; this server reads text only", where
        )
    return given.text(_TEXTS[kind], "")
