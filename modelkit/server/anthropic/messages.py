"""Content blocks to a conversation, as templates take it.

One message of Anthropic's may be several of ours: results of tools are messages of their own, and come before
the text that was sent with them. Messages of one speaker in a row are one. What was thought goes back as it
came, whatever its signature; a block that only Anthropic can read is left out. A compaction stands for all
that was said before it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from modelkit.chat.message import MOST_MESSAGES, Message, ToolCall
from modelkit.server.conversation import Calls, call_of, without_blank_end
from modelkit.server.faults import Refused, refused
from modelkit.server.fields import Fields, wrong
from runtime.quoting import quoted, shown

BILLING = "x-anthropic-billing-header:"
"""Claude Code puts a line that begins so in front of its system text, with another value each time: kept, it
would make every prompt a new one.
"""
ID_PREFIX = "toolu_"
_ROLES = ("user", "assistant", "system")
MOST_BLOCKS = 10_000
_BETWEEN = "\n\n"
_UNREADABLE = frozenset({"redacted_thinking"})
CHANGES = frozenset({"tool_addition", "tool_removal"})
"""Blocks of system messages that say nothing to the model: see `offered`."""


def read_conversation(
    body: Fields, earlier: Sequence[Message] = (), *, goes_on: bool = False
) -> list[Message]:
    """`messages`, behind those of a thread: at least one. goes_on: as the user's next message finds them."""
    found, calls, given = [*earlier], Calls(), list(body.each("messages", MOST_MESSAGES))
    for message in earlier:
        calls.lack(message)
    turns = [place for place, one in enumerate(given) if one.raw("role") == "user"]
    last = len(given) if goes_on else max(turns, default=0)
    for place, one in enumerate(given):
        if summary := _summary(one):
            found = [Message("user", f"Summary of the conversation so far:\n\n{summary}")]
        read = _read(one)
        for message in () if _passes(one) and place < last else read:
            if calls.lack(message):
                raise _without_call(one, message)
            if not (summary and message == Message("assistant")):
                found.append(message)
    if not found and not goes_on:
        raise refused("invalid_request", "messages: at least one message is required", "messages")
    return _joined(without_blank_end(found)) if found else found


def says(given: Fields) -> bool:
    """Is more in this message than results of tools?"""
    content = given.raw("content")
    if not isinstance(content, list):
        return bool(content)
    return any(_kind(block) != "tool_result" for block in given.each("content", MOST_BLOCKS))


def read_system(body: Fields) -> str:
    """`system`, a text or text blocks; "" for none."""
    value = body.raw("system")
    if value is None or isinstance(value, str):
        return _without_billing(value or "")
    if not isinstance(value, list):
        raise body.wrong("system", "a text, or a list of blocks")
    texts = [_without_billing(_text_of(block)) for block in body.each("system", MOST_BLOCKS)]
    return _BETWEEN.join(text for text in texts if text)


def _without_billing(text: str) -> str:
    while text.startswith(BILLING):
        text = text.partition("\n")[2].lstrip("\n")
    return text


def _read(given: Fields) -> list[Message]:
    role = given.choice("role", _ROLES)
    if role is None:
        raise given.wrong("role", f"one of {', '.join(_ROLES)}")
    content = given.raw("content")
    if role == "system" and not content and (content is not None or given.has("output_config")):
        return []
    if isinstance(content, str):
        return [Message(role, content)]
    if not isinstance(content, list):
        raise given.wrong("content", "a text or a list of blocks")
    blocks = list(given.each("content", MOST_BLOCKS))
    if role == "system":
        blocks = [block for block in blocks if _kind(block) not in CHANGES]
        if not blocks:
            return []
    if role == "assistant":
        return [_of_assistant(blocks)]
    results = [_result(block) for block in blocks if _kind(block) == "tool_result"]
    rest = [block for block in blocks if _kind(block) != "tool_result"]
    texts = [text for text in map(_text_of, rest) if text]
    if role == "system":
        texts = [text for text in map(_without_billing, texts) if text]
    if texts or not results:
        return [*results, Message(role, _BETWEEN.join(texts))]
    return results


def _passes(given: Fields) -> bool:
    """Does the model see this message only until the user says the next?"""
    clears = given.raw("role") == "system" and given.choice("clear_at", ("next_user_message", "never"))
    return clears == "next_user_message"


def _without_call(given: Fields, result: Message) -> Refused:
    """The block is found again, for its place and its id as the client wrote it."""
    where, id = given.where, result.tool_call_id or ""  # noqa: A001
    for block in given.each("content", MOST_BLOCKS):
        if _kind(block) == "tool_result" and block.needed_text("tool_use_id").removeprefix(ID_PREFIX) == id:
            where, id = block.where, block.needed_text("tool_use_id")  # noqa: A001
            break
    told = f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {shown(id)}"
    hint = "Each `tool_result` block must have a corresponding `tool_use` block in a message before it."
    return refused("invalid_request", f"{told}. {hint}", where)


def _summary(given: Fields) -> str:
    """What its last compaction says; "" for none, and for those that failed."""
    if not isinstance(given.raw("content"), list):
        return ""
    blocks = [block for block in given.each("content", MOST_BLOCKS) if _kind(block) == "compaction"]
    return next((text for block in reversed(blocks) if (text := block.text("content"))), "")


def _of_assistant(blocks: Sequence[Fields]) -> Message:
    texts, thoughts, calls = list[str](), list[str](), list[ToolCall]()
    for block in blocks:
        kind = _kind(block)
        if kind == "thinking":
            block.nothing("signature")
            thoughts.append(block.text("thinking", ""))
        elif kind == "tool_use":
            calls.append(_call(block))
        elif kind == "compaction":
            block.nothing("encrypted_content", "signature")
            if block.has("content"):
                texts, thoughts, calls = [], [], []
        elif kind not in _UNREADABLE:
            texts.append(_text_of(block))
    thinking = _BETWEEN.join(thought for thought in thoughts if thought)
    return Message("assistant", "".join(texts), thinking or None, tuple(calls))


def _call(block: Fields) -> ToolCall:
    given = block.text("id", "").removeprefix(ID_PREFIX)
    return call_of(block.needed_text("name"), block.raw("input"), given or None, block.name("input"))


def _result(block: Fields) -> Message:
    value = block.raw("content")
    if value is None or isinstance(value, str):
        text = value or ""
    else:
        text = "\n".join(map(_text_of, block.each("content", MOST_BLOCKS)))
    # Templates have no place for the flag, and the model has to know.
    if block.flag("is_error", default=False) and "error" not in text[:200].lower():
        text = f"Error: {text}"
    return Message("tool", text, tool_call_id=block.needed_text("tool_use_id").removeprefix(ID_PREFIX))


def _text_of(block: Fields) -> str:
    """Of a block that is text, or carries some."""
    match _kind(block):
        case "text":
            return block.text("text", "")
        case "search_result":
            parts = [_text_of(one) for one in block.each("content", MOST_BLOCKS)]
            return "\n".join([block.text("title", ""), block.text("source", ""), *parts])
        case "document":
            return _document(block)
        case "tool_reference":  # tools that wait to be found are in the prompt all along
            return block.needed_text("tool_name")
        case kind:
            raise _unread(block, kind)


def _document(block: Fields) -> str:
    source = block.inner("source")
    kind = _kind(source)
    if kind == "text":
        parts = [source.text("data", "")]
    elif kind == "content":
        inner = source.raw("content")
        own = [inner] if isinstance(inner, str) else map(_text_of, source.each("content", MOST_BLOCKS))
        parts = list(own)
    else:
        raise _unread(source, kind)
    return "\n".join(filter(None, [block.text("title", ""), block.text("context", ""), *parts]))


def _kind(block: Fields) -> str:
    kind: Any = block.raw("type")
    if not isinstance(kind, str):
        raise wrong(block.name("type"), kind, "the type of a block, as a text")
    return kind


def _unread(block: Fields, kind: str) -> Refused:
    where = block.where
    return refused(
        "invalid_request", f"{where} is of type {quoted(kind)}; this server reads text only", where
    )


def _joined(messages: Sequence[Message]) -> list[Message]:
    """One message per turn of a speaker; those of tools, and the assistant's with calls, stay apart."""
    found: list[Message] = []
    for one in messages:
        last = found[-1] if found else None
        if last is None or last.role != one.role or one.role == "tool" or last.tool_calls:
            found.append(one)
            continue
        text = _BETWEEN.join(filter(None, [last.content, one.content]))
        thinking = _BETWEEN.join(filter(None, [last.thinking, one.thinking])) or None
        found[-1] = replace(last, content=text, thinking=thinking, tool_calls=one.tool_calls)
    return found
