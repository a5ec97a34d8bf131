"""Terminals of a grammar in Lark's syntax that no text fits: `T: /a+/ & /b+/`.

The library finds out when one is asked for, where an answer may have begun long before. So those that say two
things of a text at once, or what it is not, are tried by themselves. So many are, as grammars come from
anyone: behind them an answer ends as the library says it.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from modelkit.grammars.notations.outline import LEXEME

_MOST_TRIED = 64
_MOST_READ = 500_000  # characters of all that is tried together
_TERMINAL = re.compile(r"_?[A-Z]")
_IMPORT = re.compile(r"^[ \t]*%import\b[^\n]*\n", re.MULTILINE)
_DOUBTFUL = re.compile(r"&&|--|~~|\\P|\[\^[^\]]*\\[sdwSDW][^\]]*\\[sdwSDW]")
"""Classes of characters that may have none."""


def empty_terminals(text: str, takes: Callable[[str], bool]) -> frozenset[str]:
    """Their names. takes: does a grammar in Lark's syntax take any text?"""
    if not any(sign in text for sign in "&~") and not _DOUBTFUL.search(text):
        return frozenset()
    found = {name: its for name, its in _heads(text) if _TERMINAL.match(name)}
    doubtful = _doubtful(found)
    if not doubtful:
        return frozenset()
    imported = "".join(_IMPORT.findall(text))
    left, nothing = _MOST_READ, list[str]()
    for name in sorted(doubtful)[:_MOST_TRIED]:
        needed = "\n".join(found[one] for one in _needed(name, found))
        left -= len(imported) + len(needed)
        if left >= 0 and not takes(f"{imported}start: {name}\n{needed}\n"):
            nothing.append(name)
    return frozenset(nothing)


def _heads(text: str) -> Iterator[tuple[str, str]]:
    """(the name of a rule or a terminal, how it is written)."""
    lexemes = [one for one in LEXEME.finditer(text) if not one[0].startswith(("//", "#"))]
    heads = [
        place
        for place, one in enumerate(lexemes)
        if one[1] and (one[1][0].isalpha() or one[1][0] == "_") and _is_head(lexemes, place + 1)
    ]
    for place, behind in zip(heads, [*heads[1:], len(lexemes)], strict=True):
        end = next(
            (one.start() for one in lexemes[place:behind] if one[0] == "%" and _begins_line(text, one)), None
        )
        last = lexemes[behind].start() if behind < len(lexemes) else len(text)
        yield lexemes[place][0], text[lexemes[place].start() : last if end is None else end]


def _is_head(lexemes: list[re.Match[str]], place: int) -> bool:
    """Does a colon come, perhaps behind a weight and options?"""
    signs = "".join(one[0] if len(one[0]) == 1 else "x" for one in lexemes[place : place + 12])
    return re.match(r"(?:\.[x\d])?(?:\[[^\]:]*\])?:", signs) is not None


def _begins_line(text: str, one: re.Match[str]) -> bool:
    return not text[text.rfind("\n", 0, one.start()) + 1 : one.start()].strip()


def _doubtful(found: Mapping[str, str]) -> set[str]:
    """Terminals that may be of nothing, by themselves or by what they are made of."""
    own = {name for name, its in found.items() if _is_doubtful(its)}
    return {name for name in found if own & {*_needed(name, found)}} if own else own


def _is_doubtful(written: str) -> bool:
    signs = {one[0] for one in LEXEME.finditer(written) if one[1]}
    return bool(signs & {"&", "~"}) or _DOUBTFUL.search(written) is not None


def _needed(name: str, found: Mapping[str, str]) -> list[str]:
    """A terminal and those that it is made of."""
    known, left = dict[str, None](), [name]
    while left:
        one = left.pop()
        if one in found and one not in known:
            known[one] = None
            left += [its[1] for its in LEXEME.finditer(found[one]) if its[1] and _TERMINAL.match(its[1])]
    return [*known]
