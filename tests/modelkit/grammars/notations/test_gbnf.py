"""Grammars of llama.cpp's syntax mean what they do to it."""

import re

import pytest

from modelkit.errors import RequestError
from modelkit.grammars.compiling.matchers import check
from modelkit.grammars.forms import MOST_CHARACTERS, Form
from modelkit.model import Model
from runtime.sampling.constraint import allows
from tests.support.effort import at_most
from tests.support.styles import style_of
from tests.support.walks import STOP, takes, words_of


@pytest.mark.parametrize("grammar", ['root ::= "yes" | "no"', 'start: "yes" | "no"'], ids=["gbnf", "lark"])
def test_a_grammar_of_either_syntax(model: Model, grammar: str) -> None:
    assert model.generate("hello", grammar=grammar, seed=1).text in ("yes", "no")


@pytest.mark.parametrize(
    ("grammar", "wanted"),
    [
        ('root ::= (("ab")?){2} "c" # (x?)*', "(ab){0,2}c"),
        ('root ::= ((r{1,2} )? )+ "(a?)*" [?)*]\nr ::= "d" | "e"', r"[de]*\(a\?\)\*[?)*]"),
    ],
)
def test_repeats_of_repeats_in_gbnf(model: Model, grammar: str, wanted: str) -> None:
    text = model.generate("hello", grammar=grammar, seed=1, logit_bias={model.encode("(")[0]: 9.0}).text
    assert re.fullmatch(wanted, text)


GBNF = {
    "escapes": (
        'root ::= "\\u00e9\\U0001F600\\x41\\[" [\\u3042-\\u3044\\]]',
        ["\u00e9\U0001f600A[\u3043"],
        ["\u00e9"],
    ),
    "no operators": ("root ::= [a-z&&b] [+--] [~~]", ["a,~", "&-~"], ["a*~"]),
    "any character": ('root ::= .{2} "x"', ["\n\u00e9x"], ["ax"]),
    "text over lines": ('root ::= "a\nb"', ["a\nb"], ["ab"]),
    "a class and more of it": ('root ::= word "end"\nword ::= [a-z]+', ["aend", "endend"], ["end"]),
    "slashes": ('root ::= [/]+ "//" [^/]', ["///a", "////a"], ["//a"]),
    "circles": ('root ::= "(" root ")" | "x"', ["((x))"], ["(x"]),
    "a rule called start": ('start ::= "a"\nroot ::= "(" start ")"', ["(a)"], ["a"]),
    "names that are almost the same": (
        'Root ::= "1"\nroot ::= Root foo a-b a_b a-root fooBar foo-bar\nfoo ::= "2"\na-b ::= "3"\n'
        'a_b ::= "4"\na-root ::= "5"\nfooBar ::= "6"\nfoo-bar ::= "7"',
        ["1234567"],
        ["1133567", "1234566"],
    ),
    "an empty rule": ('root ::= "a" x\nx ::= ', ["a"], ["b"]),
    "repeated no time": (
        'root ::= "a" ("b" [(]{2} | r # ){0}\n){0} "c"{0,0} (("d"){0} "e")* r{ 0 } [f]{0} | "g"{0}\n'
        'r ::= "x"',
        ["a", "aee", ""],
        ["ab", "ac", "ade", "ax", "af", "g", "x"],
    ),
    "repeats that are repeated": (
        'root ::= "a"*{2} "b"{2}* ("c" | [d])+? x?{3}\nx ::= "(" "e"{1}?+ ")"',
        ["", "aaabb", "bbbbcd", "a()(e)(ee)"],
        ["b", "bbb", "e", "()()()()"],
    ),
    "classes of nothing, and a name of signs": (
        'root ::= [] "a" [^] - | []\n- ::= "b"',
        ["ab", ""],
        ["a", "xab"],
    ),
    "names that begin with a digit": (
        'root ::= 1a 2-b\n1a ::= "1"\n2-b ::= "2" | "(" 2-b ")"',
        ["12", "1(2)"],
        ["1"],
    ),
    "a hyphen that is escaped": (r"root ::= [+\-*] [a\-c]", ["+-", "-c"], [",a", "+b"]),
    "left circles": (
        'root ::= root "+" term | term\nterm ::= term "*" [0-9] | [0-9]',
        ["1", "1+2*3*4+5"],
        ["+1", "1+", "1**2"],
    ),
    "left circles behind nothing": (
        'root ::= nothing root "a" | "b"\nnothing ::= "c" | ',
        ["b", "ccbaa"],
        ["cb", "a"],
    ),
    "many readings": ('root ::= root root | "a" | ""', ["", "a", "aaaaaaaa"], ["ab"]),
    "whose else": ('root ::= "i" root | "i" root "e" root | "x"', ["iixex", "iixexex"], ["ixe"]),
    "counted": ('root ::= (("a"{100}){100}){100} | "b"', ["b"], ["a"]),
}


@pytest.mark.parametrize("case", list(GBNF))
def test_gbnf_means_what_it_does_to_llama_cpp(case: str) -> None:
    grammar, good, bad = GBNF[case]
    words = words_of(None, tokens=False)
    made = words.grammars.compile(Form("grammar", "lark", grammar))
    assert [text for text in good if not takes(words, made, text)] == []
    assert [text for text in bad if takes(words, made, text)] == []


def test_gbnf_that_leads_deep_is_refused_at_once() -> None:
    rules = "\n".join(f'{i} ::= {i + 1} "x" | "b"' for i in range(10_000))
    text = f'{rules}\n10000 ::= "q"\nroot ::= 0'
    assert len(text) <= MOST_CHARACTERS["lark"]
    with at_most(5), pytest.raises(RequestError, match="refer to each other 10,002 deep"):
        check(Form("grammar", "lark", text))


THOUGHT = "root ::= <tool_call> thought </tool_call> .{1,3}\nthought ::= !</tool_call>*"


def test_tokens_are_named_as_llama_cpp_names_them() -> None:
    style = style_of("hermes")
    words = words_of(style, tokens=True)
    opened, closed = (words.tokenizer.piece_to_id(text) for text in ("<tool_call>", "</tool_call>"))
    assert opened is not None
    assert closed is not None
    by_id = THOUGHT.replace("</tool_call>", f"<[{closed}]>").replace("<tool_call>", f"<[{opened}]>")
    for text in (THOUGHT, by_id):
        matcher = words.grammars.compile(Form("grammar", "lark", text)).matcher()
        assert [token for token in range(words.size) if allows(matcher.mask(), token)] == [opened]
        for token in (opened, 7, opened, 8):
            matcher.advance(token)
            refused = [one for one in range(words.size) if not allows(matcher.mask(), one)]
            assert refused == [STOP]
        matcher.advance(closed)
        assert not any(allows(matcher.mask(), one) for one in (opened, closed, STOP))


def test_a_token_that_the_vocabulary_has_not_is_named() -> None:
    with pytest.raises(RequestError, match='unknown special token: "<nothing>"'):
        words_of(None, tokens=False).grammars.compile(Form("grammar", "lark", "root ::= <nothing>"))
