"""Does what was asked for reach the prompt? Found out by changing it: where a template gives the same text
either way, it has no place for that part.

Many templates skip system messages, know no tools, or drop messages of a role that they do not expect. Such a
conversation is answered as if the part had never been there, which looks like a model that does not listen.
A part that the template uses in another form (shortened, escaped, moved) has its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from modelkit.chat.message import Message
from modelkit.chat.rendering import Rendering
from modelkit.chat.template import ChatTemplate
from modelkit.errors import TemplateError, Unplaced

# ASCII, so that no escaping hides it, and one word that no conversation has.
_MARK = "markofkit7d1e"
_IN_A_USERS = "Put its text into a user's message"
_ELSEWHERE = {"user": "Give a raw prompt (--raw, raw=True, /v1/completions)"}
"""By role: where its text may go instead."""


def unplaced(
    rendering: Rendering, messages: Sequence[Message], places: Sequence[int], text: str
) -> list[int]:
    """Those of `places`, numbers of messages, that leave no trace in `text`, the prompt of them all.

    Two renderings where all is well, then one for each that is in doubt. A message without content has
    nothing to place; neither has the text beside a tool call, which many templates leave out on purpose.
    """

    def rendered(changed: Mapping[int, Message]) -> str | None:
        return rendering.tried([changed.get(place, message) for place, message in enumerate(messages)])

    marked = {
        place: changed
        for place in places
        if (changed := _marked(messages[place], f"{_MARK}{place}x")) is not None
    }
    whole = rendered(marked) if marked else None
    doubtful = [place for place in marked if whole is None or f"{_MARK}{place}x" not in whole]
    return [place for place in doubtful if rendered({place: marked[place]}) == text]


def refuse_unplaced(
    rendering: Rendering, messages: Sequence[Message], names: Mapping[int, str], text: str
) -> None:
    """Raise Unplaced for tools or messages that the caller gave and the template leaves out. names: what
    the caller calls the messages that are the caller's own, by their number.
    """
    if rendering.frame.tools and rendering.without_tools().tried(messages) == text:
        raise Unplaced(
            "tools have no effect: this model's chat template has no place for them",
            part="tools",
            hint="Leave tools out, describe them in a message, or give the model a TEMPLATE that has them.",
        )
    lost = unplaced(rendering, messages, list(names), text)
    if lost:
        message = messages[lost[0]]
        kind = "tool call of" if message.tool_calls else f"{message.role} message"
        raise Unplaced(
            f"the {kind} {names[lost[0]]} has no effect: this model's chat template has no place for it",
            part="message",
            hint=f"{_ELSEWHERE.get(message.role, _IN_A_USERS)}, or give the model a TEMPLATE "
            "that has a place for it.",
        )


def inherited_notes(
    template: ChatTemplate | None, system: str | None, messages: Sequence[tuple[str, str]]
) -> tuple[str, ...]:
    """What of a package's own system text and saved messages its template leaves out, as notes."""
    own = [*([("system", system)] if system else []), *messages]
    if not own:
        return ()
    names = [*(["SYSTEM"] if system else []), *(f"MESSAGE {role}" for role, _ in messages)]
    if template is None:
        return (f"{_idle(names)}: without a chat template there is no place for that",)
    talk = [*(Message(role, content) for role, content in own), Message("user", "?")]
    try:
        text = template.render(talk)
    except TemplateError as error:
        said, several = _joined(names)
        makes = "make" if several else "makes"
        return (f"{said} {makes} the chat template fail, and with it every chat: {error.message}",)
    lost = [names[place] for place in unplaced(Rendering(template), talk, range(len(own)), text)]
    return (f"{_idle(lost)}: the chat template has no place for that",) if lost else ()


def _idle(names: Sequence[str]) -> str:
    said, several = _joined(names)
    return f"{said} {'have' if several else 'has'} no effect"


def _marked(message: Message, mark: str) -> Message | None:
    """The message with a mark in what it says; None where it says nothing."""
    if message.tool_calls:
        calls = (replace(call, name=call.name + mark) for call in message.tool_calls)
        return replace(message, tool_calls=tuple(calls))
    return replace(message, content=f"{message.content} {mark}") if message.content.strip() else None


def _joined(names: Sequence[str]) -> tuple[str, bool]:
    """Each once, and whether they are several."""
    each = list(dict.fromkeys(names))
    return " and ".join(each), len(each) > 1
