"""Templates that read a message's text as parts alone: those of some models that see pictures (LLaVA-NeXT,
Idefics 3). They walk `content` for parts of the type "text", so that a plain text is nothing to them, or an
error.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from modelkit.errors import TemplateError

Messages = Sequence[Mapping[str, Any]]

_NAMED = re.compile(r"""['"]text['"]|\.text\b""")
_MARK = "markofkit"


def reads_parts(source: str, render: Callable[[Messages], str]) -> bool:
    """Does a text arrive as a part, and not as it is? Two renderings of one message at most, and none for a
    template that names no such part.
    """

    def arrives(content: Any) -> bool:
        try:
            return _MARK in render([{"role": "user", "content": content}])
        except TemplateError:
            return False

    return _NAMED.search(source) is not None and not arrives(_MARK) and arrives(_part(_MARK))


def in_parts(messages: Messages) -> list[dict[str, Any]]:
    """With each text as the one part of its content."""
    return [
        {**message, "content": _part(content)}
        if isinstance(content := message.get("content"), str)
        else {**message}
        for message in messages
    ]


def _part(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
