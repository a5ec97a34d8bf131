"""`\\d` is 0 to 9 wherever an expression stands."""

import pytest

from modelkit.grammars.forms import read_form
from modelkit.grammars.notations.ascii_digits import in_expression, in_grammar
from tests.support.walks import takes, words_of

BYTES = words_of(None, tokens=False)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\d{4}-\d", r"[0-9]{4}-[0-9]"),
        (r"[\d.]+\D", r"[0-9.]+[^0-9]"),
        (r"[^\d]", r"[^0-9]"),
        (r"[\D\s]", r"[[^0-9]\s]"),
        (r"[]\d]\d", r"[]0-9][0-9]"),
        (r"[^]\d]\d", r"[^]0-9][0-9]"),
        (r"[a[\d]b]\d", r"[a[0-9]b][0-9]"),
        (r"[[:alpha:]\d]\d", r"[[:alpha:]0-9][0-9]"),
        (r"\[\d\]", r"\[[0-9]\]"),
        (r"\\d\\\d", r"\\d\\[0-9]"),
        (r"\p{Nd}\w", r"\p{Nd}\w"),
        ("a]\n\\", "a]\n"),
    ],
)
def test_expressions_are_written_so(written: str, meant: str) -> None:
    assert in_expression(written) == meant


def test_in_rules_only_expressions_are() -> None:
    lark = 'start: "\\\\d" A // a \\d\nA: /\\d\\/\\d/i  # \\d\n'
    assert in_grammar(lark) == 'start: "\\\\d" A // a \\d\nA: /[0-9]\\/[0-9]/i  # \\d\n'


@pytest.mark.parametrize("form", [read_form(regex=r"\d{2}[\d-]"), read_form(grammar=r"start: /\d{2}[\d-]/")])
def test_no_answer_has_digits_of_other_scripts(form: object) -> None:
    grammar = BYTES.grammars.compile(form)
    assert takes(BYTES, grammar, "12-")
    assert not takes(BYTES, grammar, "١٢-")
    assert not takes(BYTES, grammar, "12\U0001fbf8")
