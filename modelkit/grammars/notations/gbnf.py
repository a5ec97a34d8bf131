r"""GBNF in Lark's syntax, by the library's converter, with the meaning that it has to llama.cpp.

The converter hands characters on as they are escaped, in spellings that Lark does not know (`\u00e9`), and
classes as they stand, where an expression has operators (`&&`, `--`) and `.` leaves out line ends: these are
written out. It leaves out the brackets of `("a"?)*` and so makes `"a"?*` of it, which Lark does not take;
they stay where more than one thing stands inside: an empty text at the end changes nothing else. What is
repeated no time (`x{0}`), which Lark does not take, is an empty text, and so is a class of nothing (`[]`).
Where a repeat is repeated (`"a"*{2}`), which the converter does not take, it has brackets.

References to tokens (`<[7]>`, `<think>`, and `!<think>` for any other one) go by the converter as rules that
refer to themselves, and are written when it is done.

A rule without circles becomes a terminal, which takes all that it can, and may leave nothing for what follows
it (`word "end"`). A rule around `root` makes a terminal of the whole where there are no circles in it; where
there are, such rules are no terminals (`gbnf_terminals`).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from math import prod
from typing import TYPE_CHECKING

from modelkit.grammars.notations.limits import grammar_fault
from modelkit.grammars.schemas.limits import LONGEST_TEXT

if TYPE_CHECKING:
    from llguidance.gbnf_to_lark import RuleNode

_CHARACTER = r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)|[^\\]"
_CHARACTERS = re.compile(_CHARACTER, re.DOTALL)
_RANGES = re.compile(rf"({_CHARACTER})(?:-({_CHARACTER}))?", re.DOTALL)
_PIECE = re.compile(
    r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*|\{[^}]*\}|::=|\s+|[A-Za-z0-9_-]+|!?<[^<>\s]+>|.',
    re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_GBNF = re.compile(r"^\s*root\s*::=", re.MULTILINE)
_HEAD = re.compile(r"^\s*[A-Za-z0-9_-]+\s*::=", re.MULTILINE)
_TOKEN = re.compile(r"(!?)<(?:\[(\d+)\]|([^<>\s]+))>")
_ESCAPES = {"-": "-", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "[": "[", "]": "]"}
_IN_TEXTS = {"\n": r"\n", "\r": r"\r", "\t": r"\t", '"': r"\"", "\\": r"\\"}
_COUNT = re.compile(r"\{.*?(\d{1,9})\s*,?\s*\}")
_NEVER = re.compile(r"\{\s*0+\s*(?:,\s*0+\s*)?\}")
_NUMBER = re.compile(r"\d+")
_MOST_TIMES = 2**31 - 1  # the library counts in 32 bits
_MOST_COUNTED = 100_000  # repeats of repeats: an expression is as long as all of them
_REPEATS = ("?", "*", "+", "{")
_ANY = r'(. | "\n")'


def is_gbnf(text: str) -> bool:
    """Has it rules that Lark's syntax has not? One of them may be called `start`, as Lark's first one is."""
    from llguidance.gbnf_to_lark import is_lark_syntax

    return _GBNF.search(text) is not None or (_HEAD.search(text) is not None and not is_lark_syntax(text))


def as_lark(text: str) -> str:
    """The same rules. Raises the converter's error for what is not GBNF; ValueError for rules that refer to
    each other so deep that it would take minutes.
    """
    from modelkit.grammars.notations.gbnf_terminals import TokenNode, split_terminals

    why = grammar_fault("".join(_outlined(piece) for piece in _PIECE.findall(text)))
    if why is not None:
        raise ValueError(why)
    found = _PIECE.findall(text)
    _refuse_large(found)
    names = _apart(piece for piece in found if _NAME.fullmatch(piece))
    tokens = _tokens({piece for piece in found if _TOKEN.fullmatch(piece)}, {*names.values()})
    names |= tokens
    pieces = _with_brackets(_without_never([names.get(piece) or _written(piece) for piece in found]))
    pieces += [f"\n{name} ::= {name}" for name in tokens.values()]
    said = [place for place, piece in enumerate(pieces) if not (piece.isspace() or piece.startswith("#"))]
    for before, place, behind in _threes(said):
        repeats = pieces[before].startswith(_REPEATS) and pieces[behind].startswith(_REPEATS)
        if pieces[place] == ")" and repeats:
            pieces[place] = ' "")'
    rules = _rules("".join("a-start" if piece == "start" else piece for piece in pieces))
    counts = [max(int(most), 1) for piece in pieces if piece[0] == "{" for most in _COUNT.findall(piece)]
    if prod(counts) <= _MOST_COUNTED:
        inner = "".join(f"a-{piece}" if piece in ("root", "start") else piece for piece in pieces)
        rules = _rules(f"root ::= a-root\n{inner}")
    for token, name in tokens.items():
        rules[name].alternatives = TokenNode(_reference(token))
    split_terminals(rules)
    return "%llguidance {}\n\n" + "".join(f"{rule}\n" for rule in rules.values())


def _without_never(pieces: list[str]) -> list[str]:
    """With an empty text in the place of what is repeated no time."""
    cuts = list[tuple[int, int]]()
    for item, place in _repeats(pieces):
        if _NEVER.fullmatch(pieces[place]):
            while cuts and cuts[-1][0] >= item:
                cuts.pop()
            cuts.append((item, place))
    kept, at = list[str](), 0
    for start, stop in cuts:
        kept += [*pieces[at:start], '""']
        at = stop + 1
    return kept + pieces[at:]


def _with_brackets(pieces: list[str]) -> list[str]:
    """With brackets around a repeat that is repeated (`"a"*{2}`)."""
    opened, closed, last = Counter[int](), set[int](), dict[int, int]()
    for item, place in _repeats(pieces):
        if item in last:
            opened[item] += 1
            closed.add(last[item])
        last[item] = place
    found = list[str]()
    for place, piece in enumerate(pieces):
        found += [*["("] * opened[place], piece, *([")"] if place in closed else ())]
    return found


def _repeats(pieces: Sequence[str]) -> Iterator[tuple[int, int]]:
    """(where something begins that is repeated, where it says how often)."""
    opened = list[int]()
    item: int | None = None
    for place, piece in enumerate(pieces):
        if piece.isspace() or piece.startswith("#"):
            continue
        if piece in ("(", "|", "::="):
            opened += [place] if piece == "(" else []
            item = None
        elif piece == ")":
            item = opened.pop() if opened else None
        elif not piece.startswith(_REPEATS):
            item = place
        elif item is not None:
            yield item, place


def _rules(text: str) -> "dict[str, RuleNode]":
    """By the names that they have to the library. Raises the converter's error, which names a line."""
    from llguidance.gbnf_to_lark import GrammarParser, resolve

    rules = GrammarParser().parse(text)
    resolve(rules)
    return rules


def _apart(names: Iterable[str]) -> dict[str, str]:
    """Names as the converter keeps them apart, to which `Foo` and `foo`, and `a-b` and `a_b`, are one."""
    found = {"root": "root", "start": "start"}
    taken = {*found, "a_root", "a_start"}
    for name in dict.fromkeys(names):
        if name in found:
            continue
        known = re.sub(r"([a-z])([A-Z])", r"\1-\2", name if name[0].isalpha() else f"r-{name}")
        while (key := known.lower().replace("-", "_")) in taken:
            known += "-again"
        taken.add(key)
        found[name] = known
    return found


def _refuse_large(pieces: Iterable[str]) -> None:
    """Raises ValueError for a long text, and for more repeats than the library counts, with their line."""
    line = 1
    for piece in pieces:
        if piece[0] == '"' and len(piece) > LONGEST_TEXT:
            raise ValueError(
                f"line {line}: a text has {len(piece):,} characters; at most {LONGEST_TEXT:,} are taken"
            )
        most = max((int(one[:20]) for one in _NUMBER.findall(piece)), default=0) if piece[0] == "{" else 0
        if most > _MOST_TIMES:
            raise ValueError(f"line {line}: {piece[:40]} repeats more than {_MOST_TIMES:,} times")
        line += piece.count("\n")


def _tokens(written: Iterable[str], taken: set[str]) -> dict[str, str]:
    """Names of rules for references to tokens, which the converter does not know. Each refers to itself until
    it is written, so that no rule around it is a terminal.
    """
    known = {name.lower().replace("-", "_") for name in taken}
    free = (name for number in count() if (name := f"token{number}") not in known)
    return {one: next(free) for one in sorted(written)}


def _reference(token: str) -> str:
    """To a token by its id or its text, as the library and `vocabulary.with_ids` know it."""
    found = _TOKEN.fullmatch(token)
    assert found is not None
    other, number, name = found.groups()
    sign = "^" if other else ""
    return f"<[{sign}{number}]>" if number else f"<{sign}{name}>"


def _outlined(piece: str) -> str:
    """Of rules, their names and lines."""
    if _NAME.fullmatch(piece):
        return f"r{piece.encode().hex()}"  # small letters, as a rule of Lark's has them
    return piece if piece.isspace() or piece == "::=" else " "


def _threes(places: list[int]) -> Iterator[tuple[int, int, int]]:
    return zip(places, places[1:], places[2:], strict=False)


def _written(piece: str) -> str:
    if piece == ".":
        return _ANY
    if piece in ("[]", "[^]"):
        return '""'
    if len(piece) < 3 or piece[0] not in '"[':
        return piece
    try:
        return _text(piece[1:-1]) if piece[0] == '"' else _class(piece[1:-1])
    except (KeyError, ValueError):  # an escape that GBNF has not
        return piece


def _text(inner: str) -> str:
    chars = map(_char, _CHARACTERS.findall(inner))
    return (
        '"'
        + "".join(_IN_TEXTS.get(char) or (char if char.isprintable() else _hex(char)) for char in chars)
        + '"'
    )


def _class(inner: str) -> str:
    negated = "^" if inner.startswith("^") else ""
    ends = ([_char(end) for end in ends if end] for ends in _RANGES.findall(inner.removeprefix("^")))
    return f"[{negated}{''.join('-'.join(map(_member, two)) for two in ends)}]"


def _char(written: str) -> str:
    """Raises KeyError or ValueError for an escape that stands for no character."""
    if not written.startswith("\\"):
        return written
    char = chr(int(written[2:], 16)) if len(written) > 2 else _ESCAPES[written[1]]
    char.encode()  # no half of a surrogate pair
    return char


def _member(char: str) -> str:
    return char if char.isalnum() or char > "\xff" else _hex(char)


def _hex(char: str) -> str:
    return f"\\x{ord(char):02x}" if char <= "\xff" else char
