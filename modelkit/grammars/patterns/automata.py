"""Patterns of texts as automata: what does not fit one, and whether a text fits several at once.

What is outside of a pattern has no pattern of its own that could be read off it; an automaton has one, in
which the states that take a text are the others, and is written as a pattern again. All is bounded: patterns
come from anyone, and an automaton may have a state for every set of places in its pattern.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise

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
    merged_ranges,
    other_characters,
    parsed,
)
from runtime.records import dataclass

MOST_STATES = 1_500
_NEVER = (-1, -1)
_AT_BORDERS = ("border", "inside")
_MOST_COMPARED = 200  # states, each with all others
_MOST_NODES = 6_000  # of a pattern, its repeats counted out

EVERY = other_characters(())
"""All characters."""

_Place = tuple[frozenset[int], bool, bool]
"""(nodes, whether the text begins there, whether a character of a word was the last)."""
Step = tuple[int, int, int]
"""(the first and the last character, the state that they lead to)."""


class WorkLimit:
    """How many are left for all patterns of one schema, a microsecond each."""

    def __init__(self, most: int = 400_000) -> None:
        self._left = most

    def take(self, count: int) -> None:
        """Raises UnsupportedPattern."""
        self._left -= count
        if self._left < 0:
            raise UnsupportedPattern("its patterns take too long to compare")


@dataclass(frozen=True, slots=True)
class Automaton:
    """Begins in state 0 and takes a step with every character."""

    steps: tuple[tuple[Step, ...], ...]
    """Of each state, for all characters, in their order."""
    ends: frozenset[int]
    """The states in which a text may end."""


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


def of_length(least: int, most: int | None) -> Automaton:
    """Of all texts with so many characters."""
    count = least if most is None else most + 1
    steps = tuple(
        tuple((low, high, min(state + 1, count)) for low, high in EVERY) for state in range(count + 1)
    )
    return Automaton(steps, frozenset(range(least, count + (most is None))))


def of_texts(texts: Sequence[str]) -> Automaton:
    """Of these texts."""
    places = {"": 0}
    for text in texts:
        for stop in range(1, len(text) + 1):
            places.setdefault(text[:stop], len(places))
    _refuse_large(len(places))
    onward: list[dict[int, int]] = [{} for _ in places]
    for text, state in places.items():
        if text:
            onward[places[text[:-1]]][ord(text[-1])] = state
    never = len(places)
    steps = [_filled(one, never) for one in (*onward, {})]
    return _trimmed(Automaton(tuple(steps), frozenset(places[text] for text in texts)))


def _filled(onward: Mapping[int, int], rest: int) -> tuple[Step, ...]:
    chars = merged_ranges((code, code) for code in onward)
    free = [(low, high, rest) for low, high in other_characters(chars)]
    return tuple(sorted([*free, *((code, code, there) for code, there in onward.items())]))


def complement(one: Automaton) -> Automaton:
    """Of all other texts."""
    return Automaton(one.steps, frozenset(range(len(one.steps))) - one.ends)


def intersection(every: Sequence[Automaton], looks: WorkLimit) -> Automaton:
    """Of the texts that all of these take. Raises UnsupportedPattern."""
    return reduce(lambda one, other: _product(one, other, looks), every)


def accepts_any(one: Automaton) -> bool:
    """Is there a text that it takes?"""
    return bool(one.ends)  # a state that nothing leads to is never made


def accepts(one: Automaton, text: str) -> bool:
    """Does it take this one?"""
    state = 0
    for code in map(ord, text):
        state = next((there for low, high, there in one.steps[state] if low <= code <= high), -1)
        if state < 0:  # half a surrogate pair is not a character
            return False
    return state in one.ends


def accepted_texts(one: Automaton, most: int) -> list[str] | None:
    """The texts that it takes, short ones first; None for more than so many."""
    going, found, left = _leading_to(one, one.ends), list[str](), [("", 0)]
    while left and len(found) + len(left) <= most:
        found += [text for text, state in left if state in one.ends]
        steps = [(text, step) for text, state in left for step in one.steps[state] if step[2] in going]
        if sum(high - low + 1 for _, (low, high, _) in steps) > most:
            return None
        left = [(text + chr(code), on) for text, (low, high, on) in steps for code in range(low, high + 1)]
    return None if left or len(found) > most else found


def _product(one: Automaton, other: Automaton, looks: WorkLimit) -> Automaton:
    places = {(0, 0): 0}
    never = _dead_states(one), _dead_states(other)
    left, steps = [(0, 0)], list[tuple[Step, ...]]()
    for here in left:
        made = list[Step]()
        if here == _NEVER:
            steps.append(tuple((*ends, places[_NEVER]) for ends in EVERY))
            continue
        for low, high, there in _meeting(one.steps[here[0]], other.steps[here[1]]):
            looks.take(1)
            if there[0] in never[0] or there[1] in never[1]:
                there = _NEVER
            if there not in places:
                places[there] = len(places)
                left.append(there)
            made.append((low, high, places[there]))
        _refuse_large(len(places))
        steps.append(_merged(made))
    ends = (at for (a, b), at in places.items() if a in one.ends and b in other.ends)
    return _trimmed(Automaton(tuple(steps), frozenset(ends)))


def _dead_states(one: Automaton) -> set[int]:
    """States from which no text is taken any more, where they are one step from themselves."""
    return {
        state
        for state, steps in enumerate(one.steps)
        if state not in one.ends and all(there == state for _, _, there in steps)
    }


def _meeting(some: Sequence[Step], more: Sequence[Step]) -> Iterator[tuple[int, int, tuple[int, int]]]:
    a = b = 0
    while a < len(some) and b < len(more):
        low, high = max(some[a][0], more[b][0]), min(some[a][1], more[b][1])
        if low <= high:
            yield low, high, (some[a][2], more[b][2])
        a, b = a + (some[a][1] == high), b + (more[b][1] == high)


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
        _refuse_large(len(places))
        steps.append(_merged(made))
    return _trimmed(Automaton(tuple(steps), frozenset(ends)))


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


def _merged(steps: Iterable[Step]) -> tuple[Step, ...]:
    found = list[Step]()
    for low, high, there in steps:
        if found and found[-1][2] == there and found[-1][1] == low - 1:
            found[-1] = found[-1][0], high, there
        else:
            found.append((low, high, there))
    return tuple(found)


def _refuse_large(states: int) -> None:
    if states > MOST_STATES:
        raise UnsupportedPattern("it has too many ways to go on to be compared with others")


def _trimmed(one: Automaton) -> Automaton:
    """With one state in the place of all that take no text any more, and one of all that take every text."""
    alive = _leading_to(one, one.ends)
    open_ = _leading_to(one, frozenset(range(len(one.steps))) - one.ends)
    kept = [state for state in range(len(one.steps)) if state in alive and state in open_]
    if not kept or kept[0] != 0:  # it takes all texts, or none
        return Automaton(
            (tuple((*ends, 0) for ends in EVERY),), frozenset([0]) if 0 in alive else frozenset()
        )
    names = {state: place for place, state in enumerate(kept)}
    never, always = len(kept), len(kept) + 1

    def name(state: int) -> int:
        return names.get(state, always if state in alive else never)

    steps = [_merged((low, high, name(there)) for low, high, there in one.steps[state]) for state in kept]
    sinks = [tuple((*ends, state) for ends in EVERY) for state in (never, always)]
    ends = {names[state] for state in one.ends if state in names} | {always}
    return _minimized(Automaton((*steps, *sinks), frozenset(ends)))


def _minimized(one: Automaton) -> Automaton:
    """With one state in the place of all from which the same texts are taken; a large one stays as it is."""
    if len(one.steps) > _MOST_COMPARED:
        return one
    group = [int(state in one.ends) for state in range(len(one.steps))]
    while True:
        known: dict[object, int] = {}
        said = [
            (group[state], _merged((low, high, group[there]) for low, high, there in steps))
            for state, steps in enumerate(one.steps)
        ]
        refined = [known.setdefault(one_said, len(known)) for one_said in said]
        if len(known) == len(set(group)):
            break
        group = refined
    first = {its: state for state, its in reversed([*enumerate(group)])}
    names = {its: place for place, its in enumerate(sorted(first, key=lambda its: first[its]))}
    steps = [
        _merged((low, high, names[group[there]]) for low, high, there in one.steps[first[its]])
        for its in names
    ]
    return Automaton(tuple(steps), frozenset(names[group[state]] for state in one.ends))


def _leading_to(one: Automaton, states: Collection[int]) -> set[int]:
    """These, and all from which they can be reached."""
    before = dict[int, set[int]]()
    for state, steps in enumerate(one.steps):
        for _, _, there in steps:
            before.setdefault(there, set()).add(state)
    found, left = set(states), [*states]
    while left:
        more = before.get(left.pop(), set()) - found
        found |= more
        left += more
    return found
