"""Which texts there are that several patterns, formats and lengths allow at once.

Where that is not known, because a pattern is not understood or takes too long, there may be some.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from modelkit.grammars.automata import (
    Automaton,
    Looks,
    at_once,
    automaton_of,
    outside,
    sized,
    takes,
    takes_any,
)
from modelkit.grammars.expressions import NotUnderstood
from modelkit.grammars.patterns import FORMATS
from modelkit.grammars.unfolded import pattern_of

_LONGEST = 200  # characters that are counted
MOST_PATTERNS = 3
"""Of one text: each more multiplies what is looked through."""
_MOST = 8  # patterns of one text, each compared with all others


class Texts:
    """Of one schema: each pattern is looked through once, and all together take a moment."""

    def __init__(self) -> None:
        self._looks = Looks()
        self._known: dict[str, Automaton | str] = {}
        self._others: dict[str, str] = {}
        self._some: dict[tuple[str | float | None, ...], bool] = {}

    def other_than(self, pattern: str, beside: Mapping[str, Any]) -> str | None:
        """A pattern of the texts of a way (`ways`) that do not fit this one: "" where those are all of them,
        None where there are none. Raises NotUnderstood.
        """
        its = self._of(pattern)
        known = [automaton for one in patterns_in(beside) if (automaton := self._perhaps(one)) is not None]
        if known and not takes_any(at_once([*known, its], self._looks)):
            return ""
        if not takes_any(at_once([*known, outside(its)], self._looks)):
            return None
        if pattern not in self._others:
            rest = outside(its)
            other = self._others[pattern] = pattern_of(rest)
            self._known[other], self._others[other] = rest, pattern
        return self._others[pattern]

    def any_of(self, way: Mapping[str, Any]) -> bool:
        """Is there one that fits a way (`ways`)?"""
        patterns, least, most = (*patterns_in(way),), way.get("minLength", 0), way.get("maxLength")
        key = (*sorted(patterns), least, most)
        if key not in self._some:
            self._some[key] = self._any(patterns, least, most)
        return self._some[key]

    def _any(self, patterns: Sequence[str], least: float, most: float | None) -> bool:
        try:
            every = [*map(self._of, patterns)]
            if least <= (_LONGEST if most is None else most) <= _LONGEST and (least or most is not None):
                every.append(sized(int(least), None if most is None else int(most)))
            return len(every) < 2 or takes_any(at_once(every, self._looks))
        except NotUnderstood:
            return True

    def among(self, listed: Sequence[Any], way: Mapping[str, Any]) -> list[Any]:
        """Those values that patterns and formats leave."""
        try:
            every = [*map(self._of, patterns_in(way))]
        except NotUnderstood:
            return [*listed]
        return [one for one in listed if not isinstance(one, str) or all(takes(by, one) for by in every)]

    def fits(self, text: str, pattern: str) -> bool:
        """Raises NotUnderstood."""
        return takes(self._of(pattern), text)

    def needed(self, patterns: Sequence[str]) -> list[str]:
        """Those of several that are not said by the others; as one where a grammar takes no more."""
        kept = [*patterns]
        try:
            for one in reversed(patterns if 1 < len(patterns) <= _MOST else ()):
                rest = [self._of(other) for other in kept if other != one]
                if rest and not takes_any(at_once([*rest, outside(self._of(one))], self._looks)):
                    kept.remove(one)
            if len(kept) <= MOST_PATTERNS:
                return kept
            whole = at_once([*map(self._of, kept)], self._looks)
            self._known[found := pattern_of(whole)] = whole
            return [found]
        except NotUnderstood:
            return kept

    def _perhaps(self, pattern: str) -> Automaton | None:
        try:
            return self._of(pattern)
        except NotUnderstood:
            return None

    def _of(self, pattern: str) -> Automaton:
        if pattern not in self._known:
            try:
                self._known[pattern] = automaton_of(pattern, self._looks)
            except NotUnderstood as error:
                self._known[pattern] = str(error)
        known = self._known[pattern]
        if isinstance(known, str):
            raise NotUnderstood(known)
        return known


def patterns_in(way: Mapping[str, Any]) -> Iterator[str]:
    """Those of a way, its formats as patterns."""
    yield from (one for one in way.get("pattern", ()) if isinstance(one, str))
    yield from (pattern_for(name) for name in way.get("format", ()) if name in FORMATS)


def pattern_for(name: str) -> str:
    """Of a format that is known."""
    return f"^({FORMATS[name]})$"
