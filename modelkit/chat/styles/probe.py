"""An output style derived from a template that no row of the table knows.

The template is rendered with conversations that differ in one thing: with and without thinking, with one call
and with two, with one argument and with two. What stands between the marks that they carry are the model's
own marks. A derived style must write the very calls that the template wrote, else it is dropped: a model that
is said to call no tools is better than calls that are read wrongly.

The idea is that of llama.cpp's autoparser (docs/autoparser.md there).
"""

import re
from dataclasses import replace

from modelkit.chat.message import Message, ToolCall
from modelkit.chat.styles.derive import ID, KEYS, LAST_TAG, NAMES, VALUES, Written, common_start, derived
from modelkit.chat.styles.style import Span, Style
from modelkit.chat.styles.writing import write_calls
from modelkit.chat.template import ChatTemplate
from modelkit.chat.time_limit import TimeLimit
from modelkit.errors import TemplateError

_MOST_CHARS = 20_000  # of an answer that says a few words: what a hostile template writes is searched too
_ASKED = Message("user", "qxuser")
_SAID, _THOUGHT = "qxsaid", "qxthought"
_TAG = re.compile(r"\s*(?:<[^<>]{1,60}>|\[[^\[\]]{1,60}\])\s*")
_ID_MEMBER = re.compile(rf'"[^"]*": "{ID}", |, "[^"]*": "{ID}"')
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "d",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string", "description": "d"} for key in KEYS},
                "required": [KEYS[0]],
            },
        },
    }
    for name in NAMES
]


def probed(template: ChatTemplate) -> Style | None:
    """None where nothing was found that holds. Some renderings of a few messages."""
    probe = _Probe(template)
    think = _think(probe)
    style = _calls(probe, think)
    if style is None and think is not None:
        style = Style("derived", "Derived from the chat template", think=think)
    return style


class _Probe:
    """What the template writes of an answer, from where it begins."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template, self._time_limit = template, TimeLimit()
        plain = Message("assistant", _SAID)
        self.said = self._text(plain) or self._text(plain, tools=True)
        self.many = template.habits().many_calls

    def _text(self, answer: Message, *, tools: bool = False) -> str | None:
        if self._time_limit.over:
            return None
        try:
            return self._template.render(
                [_ASKED, answer], tools=_TOOLS if tools else None, add_generation_prompt=False
            )
        except TemplateError:
            return None

    def answer(self, answer: Message, *, tools: bool = False) -> str | None:
        """Behind what it has in common with a plain answer; None where the template refuses it."""
        text = self._text(answer, tools=tools)
        plain = self._text(Message("assistant", _SAID), tools=tools)
        if text is None or plain is None or text == plain:
            return None
        found = text[len(common_start(text, plain)) :]
        return found if len(found) <= _MOST_CHARS else None

    @property
    def end(self) -> str:
        """What ends the turn of a plain answer."""
        return (self.said or "").rpartition(_SAID)[2]


def _think(probe: _Probe) -> Span | None:
    text = probe.answer(Message("assistant", _SAID, _THOUGHT))
    if text is None or _THOUGHT not in text or _SAID not in text:
        return None
    before, _, behind = text.partition(_THOUGHT)
    close = behind.partition(_SAID)[0]
    if not before:  # the plain answer has an empty span: what they have in common ends inside it
        whole = (probe.said or "").partition(_SAID)[0].removesuffix(close)
        found = LAST_TAG.search(whole)
        before = found.group() if found else ""
    if _TAG.fullmatch(before) and _TAG.fullmatch(close):
        return Span(before.lstrip(), close)
    return None


def _calls(probe: _Probe, think: Span | None) -> Style | None:
    found = _found(probe, think)
    if found is None:
        return None
    holding = (style for style in derived(found) if _holds(style, found))
    return next((replace(style, think=think) for style in holding), None)


def _samples() -> tuple[tuple[ToolCall, ...], ...]:
    """One call, two calls, one call with two arguments."""
    first, second = (ToolCall(name, {KEYS[0]: value}, ID) for name, value in zip(NAMES, VALUES, strict=True))
    return (first,), (first, second), (ToolCall(NAMES[0], dict(zip(KEYS, VALUES, strict=True)), ID),)


def _found(probe: _Probe, think: Span | None) -> Written | None:
    texts: list[str | None] = []
    for calls in _samples():
        text = probe.answer(Message("assistant", tool_calls=calls), tools=True)
        if text is None or not all(value in text for call in calls for value in call.arguments.values()):
            return None
        texts.append(_trimmed(text, probe.end, think))
    one, two, wide = texts
    return Written(one or "", two if probe.many else None, wide or "")


def _trimmed(text: str, end: str, think: Span | None) -> str:
    """Without an empty span of thinking in front, and without what ends the turn."""
    if think is not None and think.close.strip() in text.partition(NAMES[0])[0]:
        text = text.partition(think.close.strip())[2].lstrip()
    if end.strip() and end.strip() in text:
        text = text.rpartition(end.strip())[0]
    return text


def _holds(style: Style, found: Written) -> bool:
    """Does the style write what the template wrote?"""
    texts = (found.one, found.two, found.wide)
    pairs = [(text, calls) for text, calls in zip(texts, _samples(), strict=True) if text is not None]
    return all(_plain(write_calls(style, calls)) == _plain(text) for text, calls in pairs)


def _plain(text: str) -> str:
    """Python's texts have either quote, and JSON's objects their ids at either end."""
    return _ID_MEMBER.sub("", text.strip().replace("'", '"'))
