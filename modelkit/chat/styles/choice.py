"""Which output style a model has.

PARSER names it; else the template's own text does, for it writes the marks of the model's earlier answers;
else the names of the tokenizer's special tokens; else what the template does with conversations that differ
in one thing (`probe`). A model that none of these tells anything about calls no tools.
"""

from collections.abc import Container
from dataclasses import replace
from typing import Literal

from modelkit.chat.styles.probe import probed
from modelkit.chat.styles.style import Style
from modelkit.chat.styles.table import fingerprinted, style_named, styles
from modelkit.chat.template import ChatTemplate
from runtime.records import dataclass

_SWITCH = "enable_thinking"


@dataclass(frozen=True, slots=True)
class Choice:
    """A style, and where it was found."""

    style: Style | None
    """None: neither thinking nor calls are marked in any way that is known."""
    how: Literal["parser", "template", "tokens", "probe", "nothing"]
    """"parser": PARSER names it. "template", "tokens": by its marks in these. "probe": derived."""


def choose(template: ChatTemplate | None, parser: str | None = None, tokens: Container[str] = ()) -> Choice:
    """parser: of PARSER; a name that no row has counts as none. tokens: texts of the special tokens."""
    named = style_named(parser) if parser else None
    if named is not None:
        return Choice(named, "parser")
    if template is None:
        return Choice(None, "nothing")
    found = _found(template, tokens)
    style = _thinking_too(found.style, template)
    return Choice(style, "template" if found.style is None and style else found.how)


def _thinking_too(style: Style | None, template: ChatTemplate) -> Style | None:
    """With the usual marks of thinking where the template switches it on and names no marks: what it switches
    on would else be read as the answer.
    """
    marked = style is not None and (style.think or style.header)
    if marked or _SWITCH not in template.variables:
        return style
    usual = style_named("think")
    return replace(style, think=usual.think) if style and usual else usual


def _found(template: ChatTemplate, tokens: Container[str]) -> Choice:
    found = fingerprinted(template.source)
    by_tokens = _by_tokens(tokens)
    if by_tokens is not None and (found is None or found.form is None):
        return Choice(by_tokens, "tokens")
    if found is not None and found.form is not None:
        return Choice(found, "template")
    derived = probed(template)
    if derived is not None and (found is None or derived.form is not None):
        return Choice(derived, "probe")
    return Choice(found, "template" if found else "nothing")


def _by_tokens(tokens: Container[str]) -> Style | None:
    """Some conversions have the tokens of calls and a template that does not name them."""
    for row in styles():
        asked = (row.extra or {}).get("tokens", ())
        if asked and all(token in tokens for token in asked):
            return row
    return None
