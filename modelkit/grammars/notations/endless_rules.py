"""Rules of a grammar in Lark's syntax that never come to an end: each way to write one needs another such.

    start: "a" | "b" x
    x: "c" x

A model that has written a `b` can only go on until it is cut off, or until the library gives up. Of a rule
are read its names and signs; what is not a rule has an end, and so has what is not understood.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from modelkit.grammars.notations.outline import LEXEME, RULE

_PIECE = re.compile(r"[A-Za-z_][\w-]*|\S")
_WORD = re.compile(r"[A-Za-z_]")
_TERMINAL = re.compile(r"_?[A-Z]")
_ORDERS = frozenset({"ignore", "import", "llguidance", "declare", "override", "extend"})
_MAYBE = frozenset("?*{~")
"""Behind a part that may be left out, as far as an outline says how often it comes."""
_START = "start"
_ITSELF = '"'
_QUOTES = frozenset('"/<@')

_Ways = list[list[str]]
"""What each way to write a rule needs, and a sign for all that stands for itself."""


def endless_rule(text: str, never: Collection[str] = ()) -> str | None:
    """The first of those to which the start leads. never: terminals that no text fits, one of which is said
    where something stands in front of it that would have been written in vain.
    """
    found = _outlined(text)
    if ": :" in found or "% if" in found:  # rules with parameters, whose ways have conditions
        return None
    rules = dict(_rules(found)) | {name: [[name]] for name in never}
    ended, reached = _ended(rules), [name for name in _reached(rules) if name not in never]
    endless = next((name for name in reached if name not in ended), None)
    if endless is not None or not never:
        return endless
    written = (way[1:] for name in reached if not _TERMINAL.match(name) for way in rules[name])
    return next((one for way in written for one in way if one in never), None)


def _outlined(text: str) -> str:
    """Names and signs, with a sign for all that stands for itself."""
    found = ((one[1], one[0]) for one in LEXEME.finditer(text))
    said = (
        name or (_ITSELF if its[0] in _QUOTES and not its.startswith("//") else "") for name, its in found
    )
    return " ".join(one for one in said if one)


def _rules(text: str) -> Iterator[tuple[str, _Ways]]:
    """Rules and, by numbers, what stands in brackets in them."""
    heads = [*RULE.finditer(text)]
    for head, end in zip(heads, [*(one.start() for one in heads[1:]), len(text)], strict=False):
        yield from _read(head[1], _PIECE.findall(text, head.end(), end))


def _read(name: str, pieces: Sequence[str]) -> Iterator[tuple[str, _Ways]]:
    """A rule, and each of its groups as one."""
    opened: list[tuple[str, _Ways]] = [(name, [[]])]
    left, groups = list(reversed(pieces)), 0
    while left:
        piece = left.pop()
        ways = opened[-1][1]
        if piece == "%" and left and left[-1] in _ORDERS:
            break
        if piece in ("%", "{"):
            _skip(piece, left)
        elif piece == "|":
            ways.append([])
        elif piece in ("(", "["):
            groups += 1
            opened.append((f"{name} {groups}", [[]] if piece == "(" else [[], []]))
        elif piece in (")", "]") and len(opened) > 1:
            inner, its = opened.pop()
            yield inner, its
            _need(opened[-1][1], inner, left)
        elif piece == ">" and left:  # of an arrow: what the rule's value is called
            left.pop()
        elif _WORD.match(piece):
            _need(ways, piece, left)
        elif piece == _ITSELF:
            ways[-1].append(piece)
    yield from opened


def _need(ways: _Ways, name: str, left: Sequence[str]) -> None:
    if not left or left[-1] not in _MAYBE:
        ways[-1].append(name)
    else:  # a rule that is left out or not
        ways[-1].append(f"{name}?")


def _skip(piece: str, left: list[str]) -> None:
    """A number of times, or what is not a rule: `%json {...}`."""
    if piece == "%" and left:
        left.pop()
        if not left or left.pop() != "{":
            return
    depth = 1
    while left and depth:
        depth += {"{": 1, "}": -1}.get(left.pop(), 0)


def _ended(rules: Mapping[str, _Ways]) -> set[str]:
    """Rules that come to an end."""
    open_needs, holders = list[int](), list[str]()
    waiting = defaultdict[str, list[int]](list)
    ended = set[str]()
    for name, ways in rules.items():
        for way in ways:
            needs = {one for one in way if one in rules}
            for one in needs:
                waiting[one].append(len(holders))
            open_needs.append(len(needs))
            holders.append(name)
            if not needs:
                ended.add(name)
    left = [*ended]
    while left:
        for way in waiting[left.pop()]:
            open_needs[way] -= 1
            if not open_needs[way] and holders[way] not in ended:
                ended.add(holders[way])
                left.append(holders[way])
    return ended


def _reached(rules: Mapping[str, _Ways]) -> list[str]:
    """From the start, in their order; a part that may be left out with them."""
    found, left = dict[str, None](), [_START]
    while left:
        name = left.pop().removesuffix("?")
        if name in rules and name not in found:
            found[name] = None
            left += [one for way in reversed(rules[name]) for one in reversed(way)]
    return [*found]
