"""Which texts there are that several patterns, formats and lengths allow at once.

Where that is not known, because a pattern is not understood or takes too long, there may be some.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from modelkit.grammars.patterns.automata import (
    Automaton,
    WorkLimit,
    accepts,
    accepts_any,
    complement,
    intersection,
    of_length,
)
from modelkit.grammars.patterns.determinizing import automaton_of
from modelkit.grammars.patterns.elimination import pattern_of
from modelkit.grammars.patterns.formats import FORMATS
from modelkit.grammars.patterns.syntax import UnsupportedPattern

_LONGEST = 200  # characters that are counted
MOST_PATTERNS = 3
"""Of one text: each more multiplies what is looked through."""
_MOST = 8  # patterns of one text, each compared with all others


class TextSets:
    """Of one schema: each pattern is looked through once, and all together take a moment."""

    def __init__(self) -> None:
        self._looks = WorkLimit()
        self._known: dict[str, Automaton | str] = {}
        self._others: dict[str, str] = {}
        self._some: dict[tuple[str | float | None, ...], bool] = {}

    def other_than(self, pattern: str, beside: Mapping[str, Any]) -> str | None:
        """A pattern of the texts of a variant (`variants`) that do not fit this one: "" where those are all
        of them, None where there are none. Raises UnsupportedPattern.
        """
        its = self._of(pattern)
        known = [automaton for one in patterns_in(beside) if (automaton := self._perhaps(one)) is not None]
        if known and not accepts_any(intersection([*known, its], self._looks)):
            return ""
        if not accepts_any(intersection([*known, complement(its)], self._looks)):
            return None
        if pattern not in self._others:
            rest = complement(its)
            other = self._others[pattern] = pattern_of(rest)
            self._known[other], self._others[other] = rest, pattern
        return self._others[pattern]

    def any_of(self, way: Mapping[str, Any]) -> bool:
        """Is there one that fits a variant (`variants`)?"""
        patterns, least, most = (*patterns_in(way),), way.get("minLength", 0), way.get("maxLength")
        key = (*sorted(patterns), least, most)
        if key not in self._some:
            self._some[key] = self._any(patterns, least, most)
        return self._some[key]

    def _any(self, patterns: Sequence[str], least: float, most: float | None) -> bool:
        try:
            every = [*map(self._of, patterns)]
            if least <= (_LONGEST if most is None else most) <= _LONGEST and (least or most is not None):
                every.append(of_length(int(least), None if most is None else int(most)))
            return len(every) < 2 or accepts_any(intersection(every, self._looks))
        except UnsupportedPattern:
            return True

    def among(self, listed: Sequence[Any], way: Mapping[str, Any]) -> list[Any]:
        """Those values that patterns and formats leave."""
        try:
            every = [*map(self._of, patterns_in(way))]
        except UnsupportedPattern:
            return [*listed]
        return [one for one in listed if not isinstance(one, str) or all(accepts(by, one) for by in every)]

    def fits(self, text: str, pattern: str) -> bool:
        """Raises UnsupportedPattern."""
        return accepts(self._of(pattern), text)

    def needed(self, patterns: Sequence[str]) -> list[str]:
        """Those of several that are not said by the others; as one where a grammar takes no more."""
        kept = [*patterns]
        try:
            for one in reversed(patterns if 1 < len(patterns) <= _MOST else ()):
                rest = [self._of(other) for other in kept if other != one]
                if rest and not accepts_any(intersection([*rest, complement(self._of(one))], self._looks)):
                    kept.remove(one)
            if len(kept) <= MOST_PATTERNS:
                return kept
            whole = intersection([*map(self._of, kept)], self._looks)
            self._known[found := pattern_of(whole)] = whole
            return [found]
        except UnsupportedPattern:
            return kept

    def _perhaps(self, pattern: str) -> Automaton | None:
        try:
            return self._of(pattern)
        except UnsupportedPattern:
            return None

    def _of(self, pattern: str) -> Automaton:
        if pattern not in self._known:
            try:
                self._known[pattern] = automaton_of(pattern, self._looks)
            except UnsupportedPattern as error:
                self._known[pattern] = str(error)
        known = self._known[pattern]
        if isinstance(known, str):
            raise UnsupportedPattern(known)
        return known


def patterns_in(way: Mapping[str, Any]) -> Iterator[str]:
    """Those of a variant, its formats as patterns."""
    yield from (one for one in way.get("pattern", ()) if isinstance(one, str))
    yield from (pattern_for(name) for name in way.get("format", ()) if name in FORMATS)


def pattern_for(name: str) -> str:
    """Of a format that is known."""
    return f"^({FORMATS[name]})$"
