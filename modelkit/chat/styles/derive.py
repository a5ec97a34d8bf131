"""An output style out of calls as a template wrote them: what stands around known names and values.

Pure: texts come in, a style goes out. Whether it holds is for `probe` to see.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

from modelkit.chat.styles.style import JsonCall, MarkedCall, PythonCall, Span, Style, Tag
from runtime.records import dataclass

NAMES, KEYS, VALUES = ("qxfirst", "qxsecond"), ("qxkey", "qxother"), ("qxone", "qxtwo")
"""Of the calls. The second one has the first key too, with the second value."""
ID = "qxidentit"
"""Of each call: nine letters, as some templates insist. One that is written is part of no mark."""
LAST_TAG = re.compile(r"(?:<[^<>]{1,60}>|\[[^\[\]]{1,60}\])\s*$")


@dataclass(frozen=True, slots=True)
class Written:
    """One call and two calls as the template writes them, without what ends the turn."""

    one: str
    two: str | None
    """None where the template never writes two calls into one message."""
    wide: str
    """One call with two arguments."""

    @property
    def rest(self) -> str:
        """Behind the name of the one call."""
        return self.one.partition(NAMES[0])[2]

    def between(self, tail: str, head: str = "") -> str | None:
        """What stands between two calls, that end with `tail` behind their value and begin with `head` in
        front of their name.
        """
        if self.two is None:
            return None
        text = self.two.partition(VALUES[0])[2].partition(NAMES[1])[0]
        return text.removeprefix(tail).removesuffix(head)


def derived(found: Written) -> Iterator[Style]:
    """The styles that may have written this, one for each kind of form."""
    yield from (style for make in (_json, _marked, _python) if (style := make(found)) is not None)


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around calls: in front of the first, between two, behind the last."""

    section: str
    before: str
    behind: str
    joiner: str
    end: str

    @classmethod
    def of(cls, front: str, between: str | None, rear: str) -> "Around":
        """between: None where the template never writes two calls into one message."""
        if between is None:
            return cls("", front, rear, "", "")
        before = _common_end(front, between)
        left = between.removesuffix(before)
        behind = common_start(rear, left)
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


def common_start(one: str, other: str) -> str:
    """What both begin with, without a mark that is cut in two."""
    same = _same(one, other)
    return same[: same.rfind("<")] if same.rfind("<") > same.rfind(">") else same


def _common_end(one: str, other: str) -> str:
    """What both end with, without a mark that is cut in two."""
    same = _same(one[::-1], other[::-1])[::-1]
    closes, opens = same.find(">"), same.find("<")
    return same[closes + 1 :] if closes >= 0 and (opens < 0 or closes < opens) else same


def _json(found: Written) -> Style | None:
    place = _object_with(found.one, NAMES[0])
    form = _json_form(place[2]) if place else None
    if place is None or form is None:
        return None
    start, stop, _ = place
    text = found.one[start:stop]
    between = found.between(text.partition(VALUES[0])[2], text.partition(NAMES[0])[0])
    around = Around.of(found.one[:start], between, found.one[stop:])
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
    wanted = {KEYS[0]: VALUES[0]}
    if value == {NAMES[0]: wanted}:
        return JsonCall(name_is_key=True)
    names = [key for key, one in value.items() if one == NAMES[0]]
    arguments = [key for key, one in value.items() if one == wanted]
    ids = [key for key, one in value.items() if one == ID]
    if len(value) == 2 + len(ids) and names and arguments and len(ids) < 2:
        return JsonCall(names[0], arguments[0], id=ids[0] if ids else None)
    return None


def _marked(found: Written) -> Style | None:
    """The name between marks, behind it JSON or arguments in marks of their own."""
    front, _, rest = found.one.partition(NAMES[0])
    front, known, id_before = front.partition(ID)
    inner = re.escape(json.dumps({KEYS[0]: VALUES[0]}))
    parts = re.match(rf"([^{{]*){inner}", rest)
    tagged = (parts[1], None) if parts else _tag(found)
    if "{" in front or tagged is None:  # a brace: the name stands in JSON of an unknown kind
        return None
    suffix, tag = tagged
    tail = tag.close if tag else '"}'
    between = found.between(tail, known + id_before)
    around = Around.of(front, between, rest.partition(VALUES[0])[2].removeprefix(tail))
    before, prefix = _parted(around.before)
    close, behind = _closes(around.behind) if before.strip() else (around.behind, "")
    id_mark, named, end = suffix.partition(ID)
    marks = (end, close, id_mark, "") if named else (suffix, close, "", id_before)
    form = MarkedCall(prefix, *marks, arguments="tags" if tag else "json", tag=tag)
    if any(ID in mark for mark in (*form.marks, before, behind, around.section, around.joiner)):
        return None
    return replace(around, before=before, behind=behind).style(form)


def _parted(before: str) -> tuple[str, str]:
    """What begins a call, and what stands right in front of its name: `<tool_call>\n`, `<function=`."""
    begin = max(before.rfind("<"), before.rfind("["))
    if begin < 0 or before.rstrip().endswith((">", "]")):
        return before, ""
    return before[:begin], before[begin:]


def _closes(behind: str) -> tuple[str, str]:
    """What closes the arguments, and what closes the call."""
    last = LAST_TAG.search(behind)
    close = behind[: last.start()] if last else ""
    close = close.removesuffix("\n")
    return close, behind.removeprefix(close)


def _tag(found: Written) -> tuple[str, Tag] | None:
    """What stands behind the name, and the marks of one argument."""
    middle, key, behind = found.rest.partition(KEYS[0])
    name_end = behind.partition(VALUES[0])[0]
    between = found.wide.partition(VALUES[0])[2].partition(KEYS[1])[0]
    begin = _common_end(middle, between)
    core = begin.lstrip()
    blanks = begin.removesuffix(core)
    if not key or not core or not name_end.strip() or name_end.endswith('"'):
        return None
    return middle.removesuffix(core), Tag(core, name_end, between.removesuffix(begin) + blanks)


def _python(found: Written) -> Style | None:
    call = re.search(rf"{NAMES[0]}\({KEYS[0]}=([\"']){VALUES[0]}[\"']\)", found.one)
    if call is None:
        return None
    around = Around.of(found.one[: call.start()], found.between(call[1] + ")"), found.one[call.end() :])
    return around.listed(PythonCall(list=False))
