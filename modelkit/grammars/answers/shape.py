"""The shape of an answer: all that a request asks of it, checked; and the grammar's text for it."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Style
from modelkit.errors import RequestError
from modelkit.grammars.forms import Form
from runtime.quoting import quoted
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.grammars.calls.tools import Tool

_NO_STYLE = Style("passthrough")


@dataclass(frozen=True, slots=True)
class Shape:
    """What an answer shall look like as a whole."""

    style: Style
    opening: Opening
    tools: "tuple[Tool, ...]"
    """Those that may be called; of a tool that was named, only this."""
    choice: str
    """"auto", "none" or "required"."""
    named: bool
    parallel: bool
    form: Form | None

    @property
    def key(self) -> tuple[object, ...]:
        """What tells shapes apart."""
        tools = json.dumps([(tool.name, tool.parameters, tool.strict, tool.unheld) for tool in self.tools])
        return (repr(self.style), self.opening, tools, self.choice, self.named, self.parallel, self.form)


def shape_of(
    style: Style | None,
    opening: Opening,
    tools: Sequence[Mapping[str, Any]] | None = None,
    tool_choice: str = "auto",
    parallel: bool = True,
    form: Form | None = None,
) -> Shape | None:
    """The shape that a request asks for; None where it may look as it likes.

    tool_choice: "auto", "none", "required" or a tool's name. Raises RequestError for tools that cannot be
    read, a choice that is none, or calls of a model that makes none.
    """
    style = style or _NO_STYLE
    known = _read_tools(tools) if tools else ()
    choice, named = tool_choice, tool_choice not in ("auto", "none", "required")
    if named:
        known = tuple(tool for tool in known if tool.name == tool_choice)
        choice = "required"
        if not known:
            raise RequestError(f"tool_choice is {quoted(tool_choice)}, and no tool has this name")
    if choice == "required" and not known:
        raise RequestError("tool_choice asks for a call, and there are no tools")
    if choice == "required" and style.form is None:
        raise RequestError("tool_choice asks for a call, and this model's way to call tools is not known")
    if style.form is None:
        known = ()
    if form is None and not known:
        return None
    return Shape(style, opening, known, choice, named, parallel, form)


def _read_tools(tools: Sequence[Mapping[str, Any]]) -> "tuple[Tool, ...]":
    from modelkit.grammars.calls.tools import read_tools  # knows schemas, which most answers can do without

    return read_tools(tools)
