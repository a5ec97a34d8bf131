"""GBNF with rules in circles: the same texts as to llama.cpp, of which each character stands for itself."""

import random
from itertools import product

import pytest

from modelkit.grammars.forms import Form
from modelkit.grammars.notations.gbnf import as_lark
from tests.support.walks import takes, words_of

LETTERS = "ab("
TEXTS = ["".join(one) for size in range(1, 6) for one in product(LETTERS, repeat=size)]
ARITHMETIC = """
root  ::= (expr "=" ws term "\\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \\t\\n]*
"""
JSON = r"""
root   ::= value
value  ::= object | string ws | [0-9]+ ws | "true" ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
ws     ::= | " " | "\n" [ \t]{0,20}
"""


def taken(grammar: str, text: str) -> bool:
    words = words_of(None, tokens=False)
    return takes(words, words.grammars.compile(Form("grammar", "lark", grammar)), text)


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('root ::= "(" root ")" | word "end"\nword ::= [a-z]+', ["(aend)", "endend"], ["end", "(aend"]),
        ('root ::= "if" "(" root ")" | [a-z]+', ["if(a)", "ifa", "i"], ["if("]),
        (ARITHMETIC, ["1=1\n", "(x)*2 = 3\n\na+b=c \n"], ["1=1", "1=\n"]),
        (JSON, ['{"a": "\\\\\\"", "b": 12}', "12"], ['{"a":  1}', "1 2"]),
    ],
    ids=["a word and its end", "a word that another begins", "arithmetic of llama.cpp", "json"],
)
def test_a_terminal_leaves_what_must_follow_it(grammar: str, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not taken(grammar, text)] == []
    assert [text for text in bad if taken(grammar, text)] == []


def test_terminals_that_leave_it_anyhow_stay() -> None:
    """They are the fast ones."""
    written = as_lark(JSON)
    assert "STRING: " in written
    assert "WS: " in written
    assert '"true"' in written


Part = str | tuple[str, list["Part"]]
"""A rule's name, a text in quotes or a class; or ("all" | "one" | "more", parts)."""


def some_part(rng: random.Random, depth: int, *names: str) -> Part:
    if not depth or rng.random() < 0.4:
        text = "".join(rng.choices(LETTERS, k=rng.choice([1, 1, 2, 3])))
        return rng.choice([f'"{text}"', f"[{text}]", *names])
    kind = rng.choice(["all", "all", "one", "more"])
    return kind, [some_part(rng, depth - 1, *names) for _ in range(1 if kind == "more" else 2)]


def shown(part: Part) -> str:
    if isinstance(part, str):
        return part
    inner = [shown(one) for one in part[1]]
    return f"({inner[0]})+" if part[0] == "more" else f"({(' ' if part[0] == 'all' else ' | ').join(inner)})"


class Exact:
    """All texts of rules, each character by itself. text: the one that is looked at."""

    def __init__(self, rules: dict[str, Part], text: str) -> None:
        self.text, self.known = text, dict[tuple[str, int], frozenset[int]]()
        places = [(name, at) for name in rules for at in range(len(text) + 1)]
        before = None
        while before != self.known:
            before = dict(self.known)
            for name, at in places:
                self.known[name, at] = frozenset(self.ends(rules[name], at))

    def ends(self, part: Part, at: int) -> set[int]:
        match part:
            case str() if part[0] == '"':
                return {at + len(part) - 2} if self.text.startswith(part[1:-1], at) else set()
            case str() if part[0] == "[":
                return {at + 1} if self.text[at : at + 1] and self.text[at] in part[1:-1] else set()
            case str():
                return set(self.known.get((part, at), ()))
            case "one", parts:
                return set[int]().union(*(self.ends(one, at) for one in parts))
            case "all", [one, other]:
                return {end for middle in self.ends(one, at) for end in self.ends(other, middle)}
            case _, [one]:
                found, left = set[int](), {at}
                while left := {end for middle in left for end in self.ends(one, middle)} - found:
                    found |= left
                return found
            case _:
                raise AssertionError


@pytest.mark.parametrize("seed", range(40))
def test_any_rules_in_circles_mean_what_they_say(seed: int) -> None:
    rng = random.Random(seed)
    rules: dict[str, Part] = {
        "root": ("one", [("all", ["y", some_part(rng, 1, "x")]), some_part(rng, 2, "x", "y")]),
        "x": some_part(rng, 2),
        "y": ("one", [("all", ['"("', ("all", ["root", some_part(rng, 0)])]), some_part(rng, 2, "x")]),
    }
    grammar = "\n".join(f"{name} ::= {shown(part)}" for name, part in rules.items())
    texts = rng.sample(TEXTS, 40)
    wanted = [text for text in texts if len(text) in Exact(rules, text).known["root", 0]]
    assert [text for text in texts if taken(grammar, text)] == wanted
