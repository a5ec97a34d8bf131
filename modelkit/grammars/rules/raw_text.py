"""Texts that stand between marks as they are, held to what a schema says of them: length, patterns, formats.

A text of which nothing is said ends at its mark, wherever that comes. One of which something is said is one
expression together with its mark, which it has once, at its end. What cannot be met so (a pattern that only
the mark itself fits) or is not understood is left out and said: `Rules.leave`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from modelkit.grammars.patterns.automata import WorkLimit, intersection, of_length
from modelkit.grammars.patterns.determinizing import automaton_of
from modelkit.grammars.patterns.elimination import pattern_of
from modelkit.grammars.patterns.formats import FORMATS
from modelkit.grammars.patterns.full_match import full_expression
from modelkit.grammars.patterns.syntax import UnsupportedPattern
from modelkit.grammars.patterns.text_sets import pattern_for
from modelkit.grammars.rules.rules import Free, Rules, all_of, either, escaped, optional
from runtime.quoting import quoted
from runtime.records import dataclass

LONGEST = 32_768
"""Characters that are counted: each takes two states of a lexer that has 100,000 in all."""

_SHORT = 100  # characters of a text that is counted out
_MOST_LOOKS = 20_000  # at its patterns, each a microsecond
_LONGEST_WRITTEN = 4_000  # characters of the expression

_TRUSTED = 1_000
"""Characters, which any text may have to have without the library running out of what it may spend."""


@dataclass(frozen=True, slots=True)
class TextConstraints:
    """What is said of a text."""

    least: int = 0
    most: int | None = None
    fits: tuple[str, ...] = ()
    """Regular expressions of the whole text."""

    @property
    def anything(self) -> bool:
        return not self.least and self.most is None and not self.fits


def raw_text(rules: Rules, texts: Sequence[Mapping[str, Any]], close: str, at: str) -> str:
    """A text of one of these schemas as it is, and then the mark, which the text does not have in it. Blanks
    at the mark's beginning are counted to the text where that may be anything. at: where it stands.
    """
    known = [constraints_of(rules, schema, at) for schema in texts if "enum" not in schema]
    listed = [value for schema in texts if "enum" in schema for value in listed_values(rules, schema, at)]
    core = close.strip()
    lead, tail = close[: close.find(core)], close[close.find(core) + len(core) :]
    if not known:
        return f"({either(rules.literal(one) for one in listed)}) {rules.literal(close)}"
    known = [_possible(rules, one, core, lead, at) for one in known]
    if any(one.anything for one in known):
        return f"{rules.until(core, Free())} {rules.literal(tail)}"
    if known == [TextConstraints(least=1)] and not listed and rules.pieces(core) == [core]:
        beginning = f"{optional(lead)}{escaped(core)}"
        return f"{rules.until(core, Free(beginning=beginning))} {rules.literal(tail)}"
    known += [TextConstraints(fits=(escaped(one),)) for one in listed]
    return f"{rules.bounded(core, [_way(one, lead) for one in known])} {rules.literal(tail)}"


def constraints_of(rules: Rules, schema: Mapping[str, Any], at: str) -> TextConstraints:
    """What can be held of a text's schema."""
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if most is not None and most > LONGEST:
        rules.leave(f"maxLength of {at}: at most {LONGEST:,} characters are counted")
        most = None
    every = [schema, *schema.get("allOf", ())]
    if (one := _as_one(every, int(least), None if most is None else int(most))) is not None:
        return TextConstraints(fits=(one,))
    fits = list[str]()
    for pattern in (one["pattern"] for one in every if "pattern" in one):
        try:
            fits.append(full_expression(pattern))
        except UnsupportedPattern as error:
            rules.leave(f"pattern of {at}: {error}")
    for name in (one["format"] for one in every if "format" in one):
        if name in FORMATS:
            fits.append(FORMATS[name])
        else:
            rules.leave(f"format of {at}: it is not known")
    return TextConstraints(int(least), None if most is None else int(most), tuple(dict.fromkeys(fits)))


def _as_one(every: Sequence[Mapping[str, Any]], least: int, most: int | None) -> str | None:
    """All that is said of a short text as one expression. Of several the library sees too late that they
    cannot be met together any more: behind `aab` of `b$` and `maxLength: 4` it takes a line end for the only
    character that can come, finds that none can, and gives up the answer where a token would follow.
    """
    patterns = [one["pattern"] for one in every if "pattern" in one]
    patterns += [pattern_for(one["format"]) for one in every if one.get("format") in FORMATS]
    if not patterns or len(patterns) + bool(least or most is not None) < 2 or max(least, most or 0) > _SHORT:
        return None
    try:
        looks = WorkLimit(_MOST_LOOKS)
        found = [automaton_of(one, looks) for one in dict.fromkeys(patterns)]
        found += [of_length(least, most)] if least or most is not None else []
        one = full_expression(pattern_of(intersection(found, looks)))
        return one if len(one) <= _LONGEST_WRITTEN else None
    except UnsupportedPattern:
        return None


def listed_values(rules: Rules, schema: Mapping[str, Any], at: str) -> list[Any]:
    """The values that a schema lists, without texts that a pattern or a format beside them excludes."""
    fits = constraints_of(rules, schema, at).fits
    if not fits:
        return schema["enum"]
    texts = {one: all_of([escaped(one), *fits]) for one in schema["enum"] if isinstance(one, str)}
    never = {one for one, body in texts.items() if rules.outcome(body) == "never"}
    return [one for one in schema["enum"] if not isinstance(one, str) or one not in never]


def _way(said: TextConstraints, lead: str) -> tuple[list[str], bool]:
    """(regular expressions that all hold for the text with the blanks behind it, whether they hold for all
    that it begins with).
    """
    size = f"{{{said.least},{'' if said.most is None else said.most}}}"
    every = [rf"(.|\n){size}", *said.fits]
    return [f"({one}){escaped(lead)}" for one in every], not said.least and not said.fits


def _possible(rules: Rules, said: TextConstraints, core: str, lead: str, at: str) -> TextConstraints:
    """What of it can be met in a text without the mark."""
    if not said.fits and said.least <= _TRUSTED:
        return said

    def met(one: TextConstraints) -> bool:
        return rules.outcome(rules.bounded_body(core, *_way(one, lead))) != "never"

    if met(said):
        return said
    less = TextConstraints(said.least, said.most)
    what = "pattern and format" if said.fits else "minLength"
    if said.fits and not met(less):
        less, what = TextConstraints(0, said.most), "pattern, format and minLength"
    rules.leave(f"{what} of {at}: no text without {quoted(core)} was found that meets them")
    return less if said.fits else TextConstraints(0, said.most)
