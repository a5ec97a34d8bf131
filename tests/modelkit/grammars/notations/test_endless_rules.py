"""Rules of a grammar that never come to an end are told before an answer runs into them."""

import pytest

from modelkit.errors import RequestError
from modelkit.grammars.compiling.matchers import check
from modelkit.grammars.forms import Form
from modelkit.grammars.notations.endless_rules import endless_rule

ENDLESS = {
    'start: "a" | "b" x\nx: "c" x': "x",
    'start: "a" x?\nx: "c" x': "x",
    'start: "a" (y | "b")\nx: "c" ("d" y)\ny: x "d" -> z': "y",
    'start: "a" [x]\n?x: "c" | y\ny: "d" y "e"? // y\n  | y y': "y",
    'start: %json {"type": "object", "x": true} | x\nx.2[capture]: /a/ x': "x",
}


@pytest.mark.parametrize("text", ENDLESS)
def test_a_rule_without_an_end_is_named(text: str) -> None:
    assert endless_rule(text) == ENDLESS[text]
    with pytest.raises(RequestError, match=f"the rule {ENDLESS[text]} never comes to an end"):
        check(Form("grammar", "lark", text))


@pytest.mark.parametrize(
    ("text", "rule"), [('root ::= "a" root', "root"), ('root ::= x | "a"\nx ::= ("b" x)+', "x")]
)
def test_so_it_is_in_gbnf(text: str, rule: str) -> None:
    with pytest.raises(RequestError, match=f"the rule {rule} never comes to an end"):
        check(Form("grammar", "lark", text))


@pytest.mark.parametrize(
    "text",
    [
        'start: start "a" | "b"',
        'start: "(" start ")" | ',
        'start: x\nx: "a" x* | "b" x{0,3} | "c" (x | "d")',
        'start: x -> y\nx: "a"\ny: y "b"',  # what a value is called is not a rule, and nothing leads to y
        'start: X\nX: "a" & /b|a/ & ~"x"\n%ignore /\\s+/\n%import common.INT\nY: Y',
        'start: %json {"enum": ["x"], "y": {}} "{" y "}"\ny: @other | <[7]> | y y',
        'start: p::0x0\np::_ : "" %if is_ones([0:2]) | "a" p::set_bit(0) %if bit_clear(0)',
    ],
)
def test_others_come_to_an_end(text: str) -> None:
    assert endless_rule(text) is None
