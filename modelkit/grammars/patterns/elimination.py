"""An automaton as a pattern again: its states are taken out one by one, and what led through one of them is
written on the way from those before it to those behind it. The states with the least to write go first, so
that a chain of states is written once, from its end on.
"""

from collections.abc import Sequence
from functools import lru_cache

from modelkit.grammars.patterns.automata import EVERY, Automaton, WorkLimit
from modelkit.grammars.patterns.determinizing import automaton_of, lookaheads
from modelkit.grammars.patterns.syntax import (
    Anchor,
    Chain,
    Chars,
    Choice,
    Part,
    Range,
    Repeat,
    UnsupportedPattern,
    other_characters,
    parsed,
)

_MOST_LOOKS = 30_000  # at a pattern that looks around
_LONGEST = 12_000  # characters
_MOST_STATES = 200
_MOST_WRITTEN = 20 * _LONGEST  # on the way
_TOO_LONG = "it takes too long to write out"
_ANY = "[^]*"
_Ways = dict[str, None]
"""Patterns, any of which may stand there, in their order."""


def pattern_of(one: Automaton) -> str:
    """Of exactly its texts. Raises UnsupportedPattern where that is nothing, and for long ones."""
    if len(one.steps) > _MOST_STATES:
        raise UnsupportedPattern(_TOO_LONG)
    ways = _Graph(one).written()
    if not ways:
        raise UnsupportedPattern("it fits no text")
    return f"^{_one(ways)}$"


def without_lookarounds(pattern: str) -> Part:
    """A pattern as its parts, without looks ahead and borders of words. Raises UnsupportedPattern."""
    return parsed(_without_assertions(pattern) if has_lookarounds(pattern) else pattern)


def has_lookarounds(pattern: str) -> bool:
    """May it look at the text around a place?"""
    return pattern.startswith(("^(?=", "^(?!")) or "\\b" in pattern or "\\B" in pattern


@lru_cache(256)
def _without_assertions(pattern: str) -> str:
    ahead, _ = lookaheads(pattern)
    if not ahead and not _has_borders(parsed(pattern)):
        return pattern
    return pattern_of(automaton_of(pattern, WorkLimit(_MOST_LOOKS)))


def _has_borders(part: Part) -> bool:
    match part:
        case Anchor(kind):
            return kind in ("border", "inside")
        case Chain(parts) | Choice(parts):
            return any(map(_has_borders, parts))
        case Repeat(inner):
            return _has_borders(inner)
        case Chars():
            return False


class _Graph:
    """begin and end are states of their own, which nothing leads to and from."""

    def __init__(self, one: Automaton) -> None:
        self._left = _MOST_WRITTEN
        self._end = end = len(one.steps)
        self._begin = begin = end + 1
        self._out: dict[int, dict[int, _Ways]] = {state: {} for state in (*range(begin), begin)}
        self._into: dict[int, set[int]] = {state: set() for state in self._out}
        for state, steps in enumerate(one.steps):
            loops = all(there == state for _, _, there in steps)
            if loops:  # it takes whatever comes, or nothing ever
                if state in one.ends:
                    self._lead(state, end, {_ANY: None})
                continue
            ranges = dict[int, list[Range]]()
            for low, high, there in steps:
                ranges.setdefault(there, []).append((low, high))
            for there, its in ranges.items():
                self._lead(state, there, {_class(its): None})
            if state in one.ends:
                self._lead(state, end, {"": None})
        self._lead(begin, 0, {"": None})

    def written(self) -> _Ways:
        left = {*self._out} - {self._begin, self._end}
        while left:
            state = min(left, key=lambda one: (self._cost(one), one))
            left.remove(state)
            self._take_out(state)
        return self._out[self._begin].get(self._end, {})

    def _lead(self, state: int, there: int, ways: _Ways) -> None:
        known = self._out[state].setdefault(there, {})
        known.update(ways)
        self._left -= sum(map(len, ways))
        if self._left < 0 or sum(map(len, known)) > _LONGEST:
            raise UnsupportedPattern(_TOO_LONG)
        self._into[there].add(state)

    def _cost(self, state: int) -> int:
        """Characters that are written when it goes, about."""
        before = [self._size(one, state) for one in self._into[state] if one != state]
        behind = [self._size(state, one) for one in self._out[state] if one != state]
        loop = self._size(state, state) if state in self._out[state] else 0
        return sum(before) * len(behind) + (sum(behind) + loop * len(behind)) * len(before)

    def _size(self, state: int, there: int) -> int:
        return sum(map(len, self._out[state][there])) + 4

    def _take_out(self, state: int) -> None:
        out, into = self._out.pop(state), self._into.pop(state)
        loop = out.pop(state, None)
        again = _any_times(loop) if loop else ""
        for there in out:
            self._into[there].discard(state)
        for before in into - {state}:
            lead = _one(self._out[before].pop(state)) + again
            for there, ways in out.items():
                self._lead(before, there, {lead + _one(ways): None})


def _one(ways: _Ways) -> str:
    """As a part of a chain: each way is a chain itself."""
    return next(iter(ways)) if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _any_times(ways: _Ways) -> str:
    one = _one(ways)
    return f"{one}*" if one.endswith((")", "]")) and one.count("[") < 2 else f"(?:{one})*"


def _class(ranges: Sequence[Range]) -> str:
    if tuple(ranges) == EVERY:
        return "[^]"
    beside = other_characters(ranges)
    if len(beside) < len(ranges):
        return f"[^{_members(beside)}]"
    return f"[{_members(ranges)}]"


def _members(ranges: Sequence[Range]) -> str:
    return "".join(_char(low) + (f"-{_char(high)}" if high > low else "") for low, high in ranges)


def _char(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else rf"\u{{{code:x}}}"
