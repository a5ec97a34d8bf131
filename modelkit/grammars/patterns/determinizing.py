"""Patterns of texts as automata.

What is outside of a pattern has no pattern of its own that could be read off it; an automaton has one, in
which the states that take a text are the others, and is written as a pattern again. All is bounded: patterns
come from anyone, and an automaton may have a state for every set of places in its pattern.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from itertools import pairwise

from modelkit.grammars.patterns.automata import (
    EVERY,
    Automaton,
    Step,
    WorkLimit,
    complement,
    intersection,
    merged_steps,
    refuse_large,
    trimmed,
)
from modelkit.grammars.patterns.syntax import (
    WORDS,
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

_AT_BORDERS = ("border", "inside")
_MOST_NODES = 6_000  # of a pattern, its repeats counted out

_Place = tuple[frozenset[int], bool, bool]
"""(nodes, whether the text begins there, whether a character of a word was the last)."""


def automaton_of(pattern: str, looks: WorkLimit) -> Automaton:
    """Of all texts that the pattern is found in, which may look ahead from their beginning on. Raises
    UnsupportedPattern.
    """
    ahead, rest = lookaheads(pattern)
    if ahead:
        every = (automaton_of(f"^(?:{inner})", looks) for inner, _ in ahead)
        held = [one if wanted else complement(one) for one, (_, wanted) in zip(every, ahead, strict=True)]
        return intersection([automaton_of(rest, looks), *held], looks)
    net = _Nfa()
    start, end = net.node(), net.node()
    net.steps[start].append((EVERY, start))
    net.steps[end].append((EVERY, end))
    net.free[net.add(parsed(pattern), start)].append((None, end))
    return _determinized(net, start, end, looks)


def lookaheads(pattern: str) -> tuple[list[tuple[str, bool]], str]:
    """(patterns that it looks ahead for from its beginning on, and whether each is to be found, all else of
    it).
    """
    found, at = list[tuple[str, bool]](), 1
    while pattern.startswith("^") and pattern.startswith(("(?=", "(?!"), at):
        if (end := _closed(pattern, at)) is None:
            return [], pattern
        found.append((pattern[at + 3 : end], pattern[at + 2] == "="))
        at = end + 1
    # Of `^(?!a)b|c` only the first choice looks ahead, and `(?!a)*` is not a group.
    rest = f"^{pattern[at:]}"
    if not found or rest[1:2] in ("*", "+", "?", "{") or isinstance(parsed(rest), Choice):
        return [], pattern
    return found, rest


def _closed(pattern: str, at: int) -> int | None:
    """Where the group ends that begins there."""
    depth, within = 0, False
    while at < len(pattern):
        char = pattern[at]
        at += char == "\\"
        if within:
            within = char != "]"
        elif char in "([":
            within, depth = char == "[", depth + (char == "(")
        elif char == ")":
            depth -= 1
            if not depth:
                return at
        at += 1
    return None


class _Nfa:
    """Places in a pattern, what leads from one to the next, and what leads there with no character."""

    def __init__(self) -> None:
        self.borders = False
        """Are there borders of words in it?"""
        self.steps: list[list[tuple[Sequence[Range], int]]] = []
        self.free: list[list[tuple[str | None, int]]] = []

    def node(self) -> int:
        if len(self.steps) == _MOST_NODES:
            raise UnsupportedPattern("it is too long, its repeats counted out, to be compared with others")
        self.steps.append([])
        self.free.append([])
        return len(self.steps) - 1

    def add(self, part: Part, start: int) -> int:
        """The place behind the part that begins at one."""
        match part:
            case Chars(ranges, classes):
                if classes:
                    raise UnsupportedPattern(f"{classes[0]} is not compared with other characters")
                end = self.node()
                self.steps[start].append((ranges, end))
                return end
            case Anchor(kind):
                self.borders |= kind in _AT_BORDERS
                end = self.node()
                self.free[start].append((kind, end))
                return end
            case Chain(parts):
                return reduce(lambda at, one: self.add(one, at), parts, start)
            case Choice(parts):
                end = self.node()
                for one in parts:
                    self.free[self.add(one, start)].append((None, end))
                return end
            case Repeat():
                return self._repeated(part, start)

    def _repeated(self, part: Repeat, start: int) -> int:
        for _ in range(part.least):
            start = self.add(part.part, start)
        if part.most is None:
            loop = self.node()
            self.free[start].append((None, loop))
            self.free[self.add(part.part, loop)].append((None, loop))
            return loop
        end = self.node()
        for _ in range(part.most - part.least):
            self.free[start].append((None, end))
            start = self.add(part.part, start)
        self.free[start].append((None, end))
        return end

    def reached(self, nodes: Iterable[int], kinds: Collection[str | None]) -> frozenset[int]:
        """From these without a character, where the text begins and ends as `kinds` has it."""
        found, left = set[int](), list(nodes)
        while left:
            node = left.pop()
            if node not in found:
                found.add(node)
                left += [there for kind, there in self.free[node] if kind in kinds]
        return frozenset(found)


def _determinized(net: _Nfa, start: int, end: int, looks: WorkLimit) -> Automaton:
    first: _Place = net.reached([start], (None, "begin")), True, False
    places: dict[_Place, int] = {first: 0}
    left, steps, ends = [*places], list[tuple[Step, ...]](), set[int]()
    for place in left:
        nodes, begins, _ = place
        looks.take(len(nodes))
        here = (None, "end", "begin") if begins else (None, "end")
        if end in net.reached(nodes, (*here, _border(place, word=False))):
            ends.add(len(steps))
        made = list[Step]()
        for low, high, targets, word in _onward(net, place):
            there: _Place = net.reached(targets, (None,)), False, word
            looks.take(len(there[0]))
            if end in there[0]:  # whatever follows: it was found
                there = frozenset([end]), False, False
            if there not in places:
                places[there] = len(places)
                left.append(there)
            made.append((low, high, places[there]))
        refuse_large(len(places))
        steps.append(merged_steps(made))
    return trimmed(Automaton(tuple(steps), frozenset(ends)))


def _border(place: _Place, *, word: bool) -> str:
    """What lies between a place and a character of a word, or another one, or the end."""
    return _AT_BORDERS[place[2] == word]


def _onward(net: _Nfa, place: _Place) -> Iterator[tuple[int, int, frozenset[int], bool]]:
    """(ranges of characters, the nodes to which one leads, whether it is one of a word)."""
    nodes, begins, _ = place
    if not net.borders:
        for one in _segments([step for node in nodes for step in net.steps[node]]):
            yield *one, False
        return
    found = list[tuple[int, int, frozenset[int], bool]]()
    for word, chars in ((True, WORDS), (False, other_characters(WORDS))):
        reached = net.reached(nodes, (None, _border(place, word=word), *(("begin",) if begins else ())))
        for low, high, there in _segments([step for node in reached for step in net.steps[node]]):
            found += [
                (max(low, first), min(high, last), there, word)
                for first, last in chars
                if max(low, first) <= min(high, last)
            ]
    yield from sorted(found, key=lambda one: one[0])


def _segments(steps: Sequence[tuple[Sequence[Range], int]]) -> Iterator[tuple[int, int, frozenset[int]]]:
    """All characters, in ranges that lead to the same places."""
    begin, end = dict[int, list[int]](), dict[int, list[int]]()
    for ranges, there in steps:
        for low, high in ranges:
            begin.setdefault(low, []).append(there)
            end.setdefault(high + 1, []).append(there)
    cuts = sorted({*begin, *end, *(low for low, _ in EVERY), *(high + 1 for _, high in EVERY)})
    count = dict[int, int]()
    for low, above in pairwise(cuts):
        for one in end.get(low, ()):
            count[one] -= 1
        for one in begin.get(low, ()):
            count[one] = count.get(one, 0) + 1
        if any(first <= low <= last for first, last in EVERY):
            yield low, above - 1, frozenset(one for one, times in count.items() if times)
