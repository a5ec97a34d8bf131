"""The tools of a request: those that it declares, as system messages in the conversation have changed them.

A prompt names its tools once, so they are those at the end of the conversation.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from modelkit.chat.message import MOST_MESSAGES
from modelkit.chat.template import MOST_TOOLS
from modelkit.server.anthropic.messages import CHANGES, MOST_BLOCKS
from modelkit.server.faults import refused
from modelkit.server.fields import Fields
from runtime.quoting import quoted


def offered(body: Fields, changes: Iterable[Fields]) -> list[Fields]:
    """Each as `tools` holds one. Raises Refused."""
    known, there = dict[str, Fields](), dict[str, Fields]()
    for one in body.each("tools", MOST_TOOLS):
        _add(there, one)
    known |= there
    for block in changes:
        adds, tool = block.text("type") == "tool_addition", block.inner("tool")
        if tool.choice("type", ("tool_reference", "tool_definition")) == "tool_definition" and adds:
            _add(there, tool.inner("definition"))
            known |= there
            continue
        name = tool.needed_text("name")
        if name not in known:
            where = tool.name("name")
            said = f"{where}: {quoted(name)} is not a tool of this conversation"
            raise refused("invalid_request", said, where)
        there.pop(name, None)
        if adds:
            there[name] = known[name]
    return list(there.values())


def changes_in(body: Fields) -> Iterator[Fields]:
    """The blocks that change them, in their order."""
    for message in body.each("messages", MOST_MESSAGES):
        content: Any = message.raw("content")
        if message.raw("role") == "system" and isinstance(content, list):
            blocks = message.each("content", MOST_BLOCKS)
            yield from (block for block in blocks if block.raw("type") in CHANGES)


def _add(there: dict[str, Fields], given: Fields) -> None:
    name = given.needed_text("name")
    if name in there:
        raise refused("invalid_request", "tools: Tool names must be unique.", given.name("name"))
    there[name] = given
