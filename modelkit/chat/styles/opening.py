"""Where an answer begins: the prompt may have written its first marks already.

Templates open thinking for the model, or open and close it where none is wanted; a call that is forced has
its head in the prompt. The prompt's tail says so for each request: a switch or a prefilled answer changes it.
"""

import json
from typing import Literal

from modelkit.chat.styles.style import Header, JsonCall, MarkedCall, PythonCall, Span, Style
from runtime.records import dataclass

Place = Literal["start", "thinking", "text", "call"]


@dataclass(frozen=True, slots=True)
class Opening:
    """Where an answer begins."""

    place: Place = "start"
    """"start": the model may yet think. "thinking": inside it. "text": no thinking comes, for it is over or
    the answer goes on with a message that is there. "call": behind the head of a call, where its arguments
    begin."""
    written: str = ""
    """What of the answer stands in the prompt, from the first mark that is still open on: `<think>\\n`. A
    splitter reads it in front of the answer."""


def opening_of(style: Style | None, prompt: str, continued: str | None = None) -> Opening:
    """What the tail of `prompt` (text, special tokens included) has opened. continued: the text at its end
    that the answer goes on with, where it is no new message.
    """
    if style is None:
        return Opening("start" if continued is None else "text")
    if continued is not None:
        return _within(style, continued)
    if style.header:
        return _behind_header(style.header, prompt)
    tail = prompt.rstrip()
    marks: list[tuple[Place, tuple[str, ...]]] = []
    if style.think:
        marks.append(("thinking", style.think.opens))
        marks.append(("text", style.think.closes))
    if style.text:
        marks.append(("text", style.text.opens))
    for place, found in marks:
        for core in (mark.strip() for mark in found):
            if core and tail.endswith(core):
                return Opening(place, prompt[len(tail) - len(core) :])
    return Opening()


def forced(style: Style, name: str, opening: Opening, identity: str = "") -> Opening:
    """`opening` with the head of a call of the tool `name`, ready for its arguments. To the prompt is to be
    appended what the new `written` has behind the old. identity: the call's id, for styles that write one
    there. Thinking that is open must be closed first.
    """
    return Opening("call", opening.written + head(style, name, identity))


def head(style: Style, name: str, identity: str = "") -> str:
    """A call's text from the first mark to where its arguments begin."""
    before = "".join(span.open for span in (style.section, style.call) if span).lstrip()
    if style.header:
        before = style.header.call.replace("{name}", name) + style.header.message + before
    match style.form:
        case JsonCall(list=is_list, name_is_key=True):
            return f"{before}{'[' * is_list}{{{json.dumps(name)}: "
        case JsonCall(list=is_list) as form:
            said = f'"{form.id}": {json.dumps(identity)}, ' if form.id and identity else ""
            return f'{before}{"[" * is_list}{{{said}"{form.name}": {json.dumps(name)}, "{form.arguments}": '
        case MarkedCall(named=False):
            return before
        case MarkedCall() as form:
            said = f"{form.id_mark}{identity}" if identity and form.id_mark else ""
            called = f"{identity}{form.id_before}{name}" if form.id_before else f"{name}{said}"
            return f"{before}{form.prefix}{called}{form.suffix}"
        case PythonCall() as form:
            return f"{before}{'[' * form.list}{name}("
        case None:
            raise ValueError(f"style {style.name} calls no tools")


def _within(style: Style, continued: str) -> Opening:
    """In a message that is there: thinking only where the message itself has opened it."""
    think: Span | None = style.think
    if think is None:
        return Opening("text")
    opened = max((continued.rfind(mark.strip()) for mark in think.opens), default=-1)
    closed = max((continued.rfind(mark.strip()) for mark in think.closes), default=-1)
    return Opening("thinking", think.open) if opened > closed else Opening("text")


def _behind_header(header: Header, prompt: str) -> Opening:
    begin = prompt.rfind(header.start)
    tail = prompt[begin + len(header.start) :] if begin >= 0 else ""
    if header.message not in tail:
        return Opening("start", tail)
    if header.thinking and tail.startswith(header.thinking):
        return Opening("thinking", tail)
    return Opening("text", tail)
