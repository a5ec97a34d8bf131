"""Automata: sets of texts, of which complements and intersections are automata again.

All is bounded: an automaton may have as many states as the two that it was made of have pairs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce

from modelkit.grammars.patterns.syntax import (
    UnsupportedPattern,
    merged_ranges,
    other_characters,
)
from runtime.records import dataclass

MOST_STATES = 1_500
_NEVER = (-1, -1)
_MOST_COMPARED = 200  # states, each with all others

EVERY = other_characters(())
"""All characters."""

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
    refuse_large(len(places))
    onward: list[dict[int, int]] = [{} for _ in places]
    for text, state in places.items():
        if text:
            onward[places[text[:-1]]][ord(text[-1])] = state
    never = len(places)
    steps = [_filled(one, never) for one in (*onward, {})]
    return trimmed(Automaton(tuple(steps), frozenset(places[text] for text in texts)))


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
        refuse_large(len(places))
        steps.append(merged_steps(made))
    ends = (at for (a, b), at in places.items() if a in one.ends and b in other.ends)
    return trimmed(Automaton(tuple(steps), frozenset(ends)))


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


def merged_steps(steps: Iterable[Step]) -> tuple[Step, ...]:
    found = list[Step]()
    for low, high, there in steps:
        if found and found[-1][2] == there and found[-1][1] == low - 1:
            found[-1] = found[-1][0], high, there
        else:
            found.append((low, high, there))
    return tuple(found)


def refuse_large(states: int) -> None:
    if states > MOST_STATES:
        raise UnsupportedPattern("it has too many ways to go on to be compared with others")


def trimmed(one: Automaton) -> Automaton:
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

    steps = [
        merged_steps((low, high, name(there)) for low, high, there in one.steps[state]) for state in kept
    ]
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
            (group[state], merged_steps((low, high, group[there]) for low, high, there in steps))
            for state, steps in enumerate(one.steps)
        ]
        refined = [known.setdefault(one_said, len(known)) for one_said in said]
        if len(known) == len(set(group)):
            break
        group = refined
    first = {its: state for state, its in reversed([*enumerate(group)])}
    names = {its: place for place, its in enumerate(sorted(first, key=lambda its: first[its]))}
    steps = [
        merged_steps((low, high, names[group[there]]) for low, high, there in one.steps[first[its]])
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
