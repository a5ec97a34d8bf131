"""Which rules of a grammar in GBNF may be terminals of the library's.

It reads a text terminal by terminal, and takes all that each can have: of `word "end"` with letters as a word
it never comes to the end. To llama.cpp each character stands for itself. Both are the same where no terminal
that has taken a text could go on, or another one in its place, with a character that may stand behind it. A
rule of which that is not so is not a terminal, and what it writes are single characters: exact, and slower.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from llguidance.gbnf_to_lark import (
    AlternativeNode,
    ASTNode,
    LiteralNode,
    RegexNode,
    RepetitionNode,
    RuleNode,
    RuleRefNode,
    SequenceNode,
)

from modelkit.grammars.patterns.syntax import Chars, Range, UnsupportedPattern, merged_ranges, parsed
from runtime.records import dataclass

_MOST_LOOKS = 500_000
_WRITTEN = re.compile(r"\\x[0-9A-Fa-f]{2}|\\.|[^\\]", re.DOTALL)


_Set = frozenset[int]


@dataclass(frozen=True, slots=True)
class TokenNode(ASTNode):
    """One token, whatever its text."""

    reference: str

    def __str__(self) -> str:
        return self.reference

    def is_terminal(self) -> bool:
        return False


class _TooMany(Exception):
    """Which characters may stand beside each other takes too long to find."""


class _Looks:
    """How many are left."""

    def __init__(self) -> None:
        self._left = _MOST_LOOKS

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise _TooMany


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where the texts of a part begin and end."""

    empty: bool = False
    first: _Set = frozenset()
    last: _Set = frozenset()


def split_terminals(rules: Mapping[str, RuleNode]) -> None:
    """Make no terminals of rules of which that would change what they mean, as far as these are found in a
    moment. In place.
    """
    every, looks = list(rules.values()), _Looks()
    terminals = {rule.name for rule in every if rule.rule_is_terminal}
    while wrong := _wrong(every, looks):
        for rule in every:
            if rule.name in wrong:
                rule.alternatives = _in_characters(rule.alternatives)
                rule.rule_is_terminal = False
        while more := [one for one in every if one.rule_is_terminal and not one.alternatives.is_terminal()]:
            for rule in more:
                rule.rule_is_terminal = False
    taken = {rule.name for rule in every}
    for rule in every:
        if rule.name in terminals and not rule.rule_is_terminal:
            name = rule.name.lower()
            while name in taken:
                name += "_"
            taken.add(name)
            rule.name = name


def _wrong(rules: Sequence[RuleNode], looks: _Looks) -> set[str]:
    """Those by which a text could go on where one ends."""
    try:
        return _Places(rules, looks).wrong()
    except (_TooMany, UnsupportedPattern):
        return set()


class _Places:
    """Where characters stand in rules, and what stands behind each: in its terminal, or behind that."""

    def __init__(self, rules: Sequence[RuleNode], looks: _Looks) -> None:
        self._rules, self._look = rules, looks.take
        self._chars = list[tuple[Range, ...]]()
        self._inner = list[set[tuple[_Set, str]]]()
        self._outer = list[set[_Set]]()
        self._of_node = dict[int, list[int]]()
        self._known = {rule.name: _Ends() for rule in rules}
        users, order = _users(rules), list(rules)
        left = {rule.name for rule in order}
        while left:
            order.reverse()  # a rule stands in front of those that it refers to, or behind them
            for rule in order:
                if rule.name in left:
                    left.remove(rule.name)
                    if self._learnt(rule):
                        left |= users.get(rule.name, set())

    def wrong(self) -> set[str]:
        found, seen = set[str](), set[_Set]()
        left = [*self._alike(set[int]().union(*map(self._starts, self._rules)))]
        while left:
            if (places := left.pop()) in seen:
                continue
            seen.add(places)
            behind = self._ranges_of(set[_Set]().union(*(self._outer[one] for one in places)))
            onward = set[tuple[_Set, str]]().union(*(self._inner[one] for one in places))
            for further, rule in onward:
                if rule not in found and _meet(self._ranges_of({further}), behind):
                    found.add(rule)
            left += self._alike(set[int]().union(*(further for further, _ in onward)))
        return found

    def _alike(self, places: Collection[int]) -> Iterator[_Set]:
        """Those at which one character may stand, for each character."""
        self._look(len(places))
        begin, end = dict[int, list[int]](), dict[int, list[int]]()
        for place in places:
            for low, high in self._chars[place]:
                begin.setdefault(low, []).append(place)
                end.setdefault(high + 1, []).append(place)
        here = set[int]()
        for code in sorted({*begin, *end}):
            here = (here - {*end.get(code, ())}) | {*begin.get(code, ())}
            if here:
                yield frozenset(here)

    def _ranges_of(self, sets: Collection[_Set]) -> tuple[Range, ...]:
        every = set[int]().union(*sets)
        self._look(len(every))
        return merged_ranges(one for place in every for one in self._chars[place])

    def _starts(self, rule: RuleNode) -> Iterator[int]:
        """Of terminals in a rule that is none."""
        left: list[ASTNode] = [] if rule.rule_is_terminal else [rule.alternatives]
        while left:
            node = left.pop()
            left += node.children()
            if isinstance(node, LiteralNode | RegexNode) or (
                isinstance(node, RuleRefNode) and node.target is not None and node.target.rule_is_terminal
            ):
                yield from self._of(node, rule).first

    def _learnt(self, rule: RuleNode) -> bool:
        """Is anything new known of it?"""
        before = self._known[rule.name]
        self._known[rule.name] = self._of(rule.alternatives, rule)
        return self._known[rule.name] != before

    def _of(self, node: ASTNode, rule: RuleNode) -> _Ends:
        match node:
            case LiteralNode() | RegexNode():
                places = self._places(node)
                for one, other in pairwise(places):
                    self._inner[one].add((frozenset([other]), rule.name))
                return _Ends(not places, frozenset(places[:1]), frozenset(places[-1:]))
            case TokenNode():  # a terminal in front of it ends there
                return _Ends()
            case RuleRefNode(target=RuleNode() as target):
                return self._known[target.name]
            case RepetitionNode():
                inner = self._of(node.node, rule)
                if node.max_times is None or node.max_times > 1:
                    self._follow(inner, inner, rule)
                return replace(inner, empty=inner.empty or node.min_times == 0)
            case AlternativeNode():
                ways = [self._of(one, rule) for one in node.alternatives]
                firsts, lasts = [one.first for one in ways], [one.last for one in ways]
                return _Ends(
                    any(one.empty for one in ways), frozenset().union(*firsts), frozenset().union(*lasts)
                )
            case SequenceNode():
                found = _Ends(empty=True)
                for one in node.nodes:
                    its = self._of(one, rule)
                    self._follow(found, its, rule)
                    first = found.first | its.first if found.empty else found.first
                    last = found.last | its.last if its.empty else its.last
                    found = _Ends(found.empty and its.empty, first, last)
                return found
            case _:
                raise _TooMany

    def _follow(self, one: _Ends, other: _Ends, rule: RuleNode) -> None:
        self._look(len(one.last))
        for last in one.last if other.first else ():
            if rule.rule_is_terminal:
                self._inner[last].add((other.first, rule.name))
            else:
                self._outer[last].add(other.first)

    def _places(self, node: LiteralNode | RegexNode) -> list[int]:
        if id(node) not in self._of_node:
            match node:
                case LiteralNode():
                    written = _WRITTEN.findall(node.value)
                case RegexNode():
                    written = [r"[^\n]" if node.rx == "." else node.rx]
            start = len(self._chars)
            self._chars += map(_ranges, written)
            self._inner += [set() for _ in written]
            self._outer += [set() for _ in written]
            self._of_node[id(node)] = [*range(start, len(self._chars))]
        return self._of_node[id(node)]


def _users(rules: Sequence[RuleNode]) -> dict[str, set[str]]:
    """By the name of a rule, the names of those that refer to it."""
    found = dict[str, set[str]]()
    for rule in rules:
        left: list[ASTNode] = [rule.alternatives]
        while left:
            node = left.pop()
            left += node.children()
            if isinstance(node, RuleRefNode) and node.target is not None:
                found.setdefault(node.target.name, set()).add(rule.name)
    return found


def _ranges(written: str) -> tuple[Range, ...]:
    """Of a character or a class. Raises UnsupportedPattern."""
    if len(written) == 1:
        return ((ord(written), ord(written)),)
    part = parsed(written)
    if not isinstance(part, Chars):
        raise UnsupportedPattern("it is not a character")
    return part.ranges


def _meet(some: Sequence[Range], others: Sequence[Range]) -> bool:
    """Have they a character in common?"""
    return any(low <= end and begin <= high for low, high in some for begin, end in others)


def _in_characters(node: ASTNode) -> ASTNode:
    match node:
        case LiteralNode():
            every: list[ASTNode] = [LiteralNode(one) for one in _WRITTEN.findall(node.value)]
            return SequenceNode(every) if len(every) > 1 else node
        case RepetitionNode():
            node.node = _in_characters(node.node)
        case SequenceNode():
            node.nodes = [*map(_in_characters, node.nodes)]
        case AlternativeNode():
            node.alternatives = [*map(_in_characters, node.alternatives)]
        case _:
            pass
    return node
