"""An output style derived from a template that no row of the table knows.

The template is rendered with conversations that differ in one thing: with and without thinking, with one call
and with two, with one argument and with two. What stands between the marks that they carry are the model's
own marks. A derived style must write the very calls that the template wrote, else it is dropped: a model that
is said to call no tools is better than calls that are read wrongly.

The idea is that of llama.cpp's autoparser (docs/autoparser.md there).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from modelkit.chat.message import Message, ToolCall
from modelkit.chat.styles.style import JsonCall, MarkedCall, PythonCall, Span, Style, Tag
from modelkit.chat.styles.writing import written
from modelkit.chat.template import ChatTemplate
from modelkit.errors import TemplateError

_ASKED = Message("user", "qxuser")
_SAID, _THOUGHT = "qxsaid", "qxthought"
_NAMES, _KEYS, _VALUES = ("qxfirst", "qxsecond"), ("qxkey", "qxother"), ("qxone", "qxtwo")
_TAG = re.compile(r"\s*(?:<[^<>]{1,60}>|\[[^\[\]]{1,60}\])\s*")
_LAST_TAG = re.compile(r"(?:<[^<>]{1,60}>|\[[^\[\]]{1,60}\])\s*$")
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "d",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string", "description": "d"} for key in _KEYS},
                "required": [_KEYS[0]],
            },
        },
    }
    for name in _NAMES
]


def probed(template: ChatTemplate) -> Style | None:
    """None where nothing was found that holds. Some renderings of a few messages."""
    talk = _Talk(template)
    think = _think(talk)
    style = _calls(talk, think)
    if style is None and think is not None:
        style = Style("derived", "Derived from the chat template", think=think)
    return style


class _Talk:
    """What the template writes of an answer, from where it begins."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        plain = Message("assistant", _SAID)
        self.said = self._text(plain) or self._text(plain, tools=True)
        self.many = template.habits().many_calls

    def _text(self, answer: Message, *, tools: bool = False) -> str | None:
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
        return text[len(_common_start(text, plain)) :]

    @property
    def end(self) -> str:
        """What ends the turn of a plain answer."""
        return (self.said or "").rpartition(_SAID)[2]


def _think(talk: _Talk) -> Span | None:
    text = talk.answer(Message("assistant", _SAID, _THOUGHT))
    if text is None or _THOUGHT not in text or _SAID not in text:
        return None
    before, _, behind = text.partition(_THOUGHT)
    close = behind.partition(_SAID)[0]
    if not before:  # the plain answer has an empty span: what they have in common ends inside it
        whole = (talk.said or "").partition(_SAID)[0].removesuffix(close)
        found = _LAST_TAG.search(whole)
        before = found.group() if found else ""
    if _TAG.fullmatch(before) and _TAG.fullmatch(close):
        return Span(before.lstrip(), close)
    return None


@dataclass(frozen=True, slots=True)
class _Written:
    """One call and two calls as the template writes them, without what ends the turn."""

    one: str
    two: str | None
    """None where the template never writes two calls into one message."""
    wide: str
    """One call with two arguments."""

    @property
    def rest(self) -> str:
        """Behind the name of the one call."""
        return self.one.partition(_NAMES[0])[2]

    def between(self, tail: str, head: str = "") -> str | None:
        """What stands between two calls, that end with `tail` behind their value and begin with `head` in
        front of their name.
        """
        if self.two is None:
            return None
        text = self.two.partition(_VALUES[0])[2].partition(_NAMES[1])[0]
        return text.removeprefix(tail).removesuffix(head)


def _calls(talk: _Talk, think: Span | None) -> Style | None:
    found = _found(talk, think)
    if found is None:
        return None
    for derive in (_json, _marked, _python):
        style = derive(found)
        if style is not None and _holds(style, found):
            return replace(style, think=think)
    return None


def _samples() -> tuple[tuple[ToolCall, ...], ...]:
    """One call, two calls, one call with two arguments."""
    first, second = (ToolCall(name, {_KEYS[0]: value}) for name, value in zip(_NAMES, _VALUES, strict=True))
    return (first,), (first, second), (ToolCall(_NAMES[0], dict(zip(_KEYS, _VALUES, strict=True))),)


def _found(talk: _Talk, think: Span | None) -> _Written | None:
    texts: list[str | None] = []
    for calls in _samples():
        text = talk.answer(Message("assistant", tool_calls=calls), tools=True)
        if text is None or not all(value in text for call in calls for value in call.arguments.values()):
            return None
        texts.append(_trimmed(text, talk.end, think))
    one, two, wide = texts
    return _Written(one or "", two if talk.many else None, wide or "")


def _trimmed(text: str, end: str, think: Span | None) -> str:
    """Without an empty span of thinking in front, and without what ends the turn."""
    if think is not None and think.close.strip() in text.partition(_NAMES[0])[0]:
        text = text.partition(think.close.strip())[2].lstrip()
    if end.strip() and end.strip() in text:
        text = text.rpartition(end.strip())[0]
    return text


def _holds(style: Style, found: _Written) -> bool:
    """Does the style write what the template wrote?"""
    texts = (found.one, found.two, found.wide)
    pairs = [(text, calls) for text, calls in zip(texts, _samples(), strict=True) if text is not None]
    return all(_plain(written(style, calls)) == _plain(text) for text, calls in pairs)


def _plain(text: str) -> str:
    return text.strip().replace("'", '"')  # Python's texts have either


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around calls: in front of the first, between two, behind the last."""

    section: str
    before: str
    behind: str
    joiner: str
    end: str

    @classmethod
    def of(cls, front: str, between: str | None, rear: str) -> "_Around":
        """between: None where the template never writes two calls into one message."""
        if between is None:
            return cls("", front, rear, "", "")
        before = _common_end(front, between)
        left = between.removesuffix(before)
        behind = _common_start(rear, left)
        return cls(
            front.removesuffix(before), before, behind, left.removeprefix(behind), rear.removeprefix(behind)
        )

    def listed(self, form: JsonCall | PythonCall) -> Style | None:
        """As a list where the section's marks end and begin with its brackets."""
        if not (self.section.endswith("[") and self.end.startswith("]")):
            return self.style(form)
        return replace(self, section=self.section[:-1], end=self.end[1:]).style(replace(form, list=True))

    def style(self, form: JsonCall | MarkedCall | PythonCall) -> Style | None:
        """With the marks in their places; None where nothing marks a call."""
        first, last, joiner, call = self.section, self.end, self.joiner, None
        if self.before.strip() or self.behind.strip():
            call = Span(self.before, self.behind)
        else:  # blanks alone mark nothing
            first, last = first + self.before, self.behind + last
            joiner = self.behind + joiner + self.before
        section = Span(first, last) if first.strip() or last.strip() else None
        if section is None and call is not None and not joiner.strip():
            call, joiner = Span(joiner + self.before, self.behind), ""
        try:
            return Style(
                "derived",
                "Derived from the chat template",
                section=section,
                call=call,
                form=form,
                joiner=joiner,
            )
        except ValueError:
            return None


def _same(one: str, other: str) -> str:
    return "".join(
        first for first, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    )


def _common_start(one: str, other: str) -> str:
    """What both begin with, without a mark that is cut in two."""
    same = _same(one, other)
    return same[: same.rfind("<")] if same.rfind("<") > same.rfind(">") else same


def _common_end(one: str, other: str) -> str:
    """What both end with, without a mark that is cut in two."""
    same = _same(one[::-1], other[::-1])[::-1]
    closes, opens = same.find(">"), same.find("<")
    return same[closes + 1 :] if closes >= 0 and (opens < 0 or closes < opens) else same


def _json(found: _Written) -> Style | None:
    place = _object_with(found.one, _NAMES[0])
    form = _json_form(place[2]) if place else None
    if place is None or form is None:
        return None
    start, stop, _ = place
    text = found.one[start:stop]
    between = found.between(text.partition(_VALUES[0])[2], text.partition(_NAMES[0])[0])
    around = _Around.of(found.one[:start], between, found.one[stop:])
    return around.listed(form)


def _object_with(text: str, mark: str) -> tuple[int, int, Mapping[str, Any]] | None:
    """The outermost JSON object that holds the mark."""
    limit = text.find(mark)
    for start in (place.start() for place in re.finditer(r"\{", text[: limit + 1])):
        try:
            value, stop = json.JSONDecoder().raw_decode(text, start)
        except ValueError:
            continue
        if stop > limit and isinstance(value, dict):
            return start, stop, value
    return None


def _json_form(value: Mapping[str, Any]) -> JsonCall | None:
    wanted = {_KEYS[0]: _VALUES[0]}
    if value == {_NAMES[0]: wanted}:
        return JsonCall(name_is_key=True)
    names = [key for key, one in value.items() if one == _NAMES[0]]
    arguments = [key for key, one in value.items() if one == wanted]
    if len(value) == 2 and names and arguments:
        return JsonCall(names[0], arguments[0])
    return None


def _marked(found: _Written) -> Style | None:
    """The name between marks, behind it JSON or arguments in marks of their own."""
    front, _, rest = found.one.partition(_NAMES[0])
    inner = re.escape(json.dumps({_KEYS[0]: _VALUES[0]}))
    parts = re.match(rf"([^{{]*){inner}", rest)
    tagged = (parts[1], None) if parts else _tag(found)
    if "{" in front or tagged is None:  # a brace: the name stands in JSON of an unknown kind
        return None
    suffix, tag = tagged
    tail = tag.close if tag else '"}'
    around = _Around.of(front, found.between(tail), rest.partition(_VALUES[0])[2].removeprefix(tail))
    before, prefix = _parted(around.before)
    close, behind = _closes(around.behind) if before.strip() else (around.behind, "")
    form = MarkedCall(prefix, suffix, close, arguments="tags" if tag else "json", tag=tag)
    return replace(around, before=before, behind=behind).style(form)


def _parted(before: str) -> tuple[str, str]:
    """What begins a call, and what stands right in front of its name: `<tool_call>\n`, `<function=`."""
    begin = max(before.rfind("<"), before.rfind("["))
    if begin < 0 or before.rstrip().endswith((">", "]")):
        return before, ""
    return before[:begin], before[begin:]


def _closes(behind: str) -> tuple[str, str]:
    """What closes the arguments, and what closes the call."""
    last = _LAST_TAG.search(behind)
    close = behind[: last.start()] if last else ""
    close = close.removesuffix("\n")
    return close, behind.removeprefix(close)


def _tag(found: _Written) -> tuple[str, Tag] | None:
    """What stands behind the name, and the marks of one argument."""
    middle, key, behind = found.rest.partition(_KEYS[0])
    name_end = behind.partition(_VALUES[0])[0]
    between = found.wide.partition(_VALUES[0])[2].partition(_KEYS[1])[0]
    begin = _common_end(middle, between)
    core = begin.lstrip()
    blanks = begin.removesuffix(core)
    if not key or not core or not name_end.strip() or name_end.endswith('"'):
        return None
    return middle.removesuffix(core), Tag(core, name_end, between.removesuffix(begin) + blanks)


def _python(found: _Written) -> Style | None:
    call = re.search(rf"{_NAMES[0]}\({_KEYS[0]}=([\"']){_VALUES[0]}[\"']\)", found.one)
    if call is None:
        return None
    around = _Around.of(found.one[: call.start()], found.between(call[1] + ")"), found.one[call.end() :])
    return around.listed(PythonCall(list=False))
